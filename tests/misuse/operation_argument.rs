//! An operation whose closure does not return what it writes.

use anabranch::{Engine, Executor, Op};

fn main() {
    let engine = Engine::new(&Executor::inline()).unwrap();
    let (x, y) = (engine.var("x", 1_i32), engine.var("y", String::new()));
    drop(engine.push(Op::task("show", &x, &y, |x: &i32| x + 1)));
}
