use anabranch::engine::Each;
use anabranch::{DeviceStream, Engine, Executor, HostStream, Op, take};
use std::sync::Arc;

fn main() {
    let engine = Engine::new(&Executor::inline()).unwrap();
    let (x, many) = (engine.var("x", vec![1_u8]), [engine.var("y", 1_u64)]);
    let _ = Op::task("by value", &x, (), |x: Vec<u8>| drop(x.len()));
    let _ = Op::task("one too few", (&x, &x), (), |x: &Vec<u8>| drop(x.len()));
    let _ = Op::task("no slice", &many[..], (), |many: Vec<&u64>| drop(many.len()));
    let _ = Op::task("other slice", &many[..], (), |many: Each<u32>| drop(many.len()));
    let _ = Op::kernel("no stream", take(&x), (), |x: Vec<u8>| drop(x.len()));
    let _ = Op::kernel("mistyped", &x, (), |_: &mut HostStream, x: &Vec<u16>| drop(x.len()));
    let _ = Op::kernel("other stream", &x, (), |_: &mut Vec<u8>, x: &Vec<u8>| drop(x.len()));
    let _ = Op::kernel("right", &x, (), |_: &mut DeviceStream, x: &Vec<u8>| drop(x.len()));
    let _ = Op::future("by reference", &x, (), async |x: &Vec<u8>| Ok(drop(x.len())));
    let _ = Op::future("infallible", &x, (), async |x: Arc<Vec<u8>>| drop(x.len()));
    let _ = Op::task("what is read", 5, (), |x: &i32| drop(x));
    let _ = Op::task("what is written", &x, 5, |x: &Vec<u8>| x.len());
}
