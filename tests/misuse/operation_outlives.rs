//! An operation that is pushed after its variable is gone: nothing would keep the value alive.

use anabranch::{Engine, Executor, Op};

fn main() {
    let engine = Engine::new(&Executor::inline()).unwrap();
    let op = {
        let x = engine.var("x", 1);
        Op::task("add", &x, &x, |x: &i32| x + 1)
    };
    drop(engine.push(op));
}
