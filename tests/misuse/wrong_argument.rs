use anabranch::{Graph, HostStream, take};
use std::sync::Arc;

fn main() {
    let mut g = Graph::new();
    let x = g.input::<Vec<u8>>("x");
    g.task("by value", &x, |x: Vec<u8>| x.len());
    g.task("one too few", (&x, &x), |x: &Vec<u8>| x.len());
    g.kernel("no stream", take(&x), |x: Vec<u8>| x.len());
    g.kernel("mistyped", &x, |_: &mut HostStream, x: &Vec<u16>| x.len());
    g.future("by reference", &x, async |x: &Vec<u8>| Ok(x.len()));
    g.future("infallible", &x, async |x: Arc<Vec<u8>>| x.len());
}
