//! Loops: the worker that ends an iteration resets it for the next one, while other workers leave the
//! previous one.

use super::harness::{block_on, check_within};
use crate::graph::times;
use crate::policy::PerOperator;
use crate::{Executor, Graph, Inputs, take};

// Seen to fail with gates that are not reset (a program that continues beyond its end).
#[test]
fn two_workers_go_twice_round_a_loop() {
    let mut g = Graph::new();
    let x = g.task("x", (), || 1);
    let x = g.repeat("loop", take(&x), times(2), |b, x| {
        let (left, right) = (b.task("left", &x, |x: &i32| x + 1), b.task("right", &x, |x: &i32| x * 2));
        b.task("join", (&left, &right), |left: &i32, right: &i32| left * right)
    });
    g.output("x", &x);
    let plan = g.compile_with(&PerOperator).expect("the graph is right");
    check_within(1, move || {
        let exec = Executor::builder().workers(2).build().expect("threads start");
        let mut outputs = block_on(exec.run(&plan, Inputs::new())).expect("nothing goes wrong");
        assert_eq!(*outputs.take::<i32>("x").expect("it is an output"), 40);
    });
}
