use anabranch::{Engine, Executor, Graph, Op};

fn main() {
    let engine = Engine::new(&Executor::inline()).unwrap();
    let x = engine.var("x", 1);
    let mut g = Graph::new();
    let y = g.task("reads a variable", &x, |x: &i32| *x);
    let _ = Op::task("reads a graph's value", &y, (), |y: &i32| drop(*y));
}
