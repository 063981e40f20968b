//! Exchanges that take their values.

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Graph, take};

use super::exchanges::{in_a_flow, in_a_graph};
use super::{all, each_rank};

#[test]
fn exchanges_give_the_same_whether_they_read_or_take() {
    // Seen to fail when a job that takes got the value of another cell.
    for (ranks, length, takes) in [(1, 3, true), (2, 0, true), (3, 5, true), (3, 5, false), (4, 20_000, true)] {
        all(each_rank(ranks, async |world| in_a_graph(&world, length, takes).await));
    }
}

#[test]
fn operations_of_flows_take_what_something_else_keeps() {
    // Seen to fail when only the sole owner could take: a value of `get`, or one that is sent, is kept.
    for (ranks, length) in [(1, 3), (2, 4), (3, 20_000)] {
        all(each_rank(ranks, async |world| in_a_flow(&world, length).await));
    }
}

#[test]
fn what_a_node_of_communication_takes_has_no_other_end() {
    let mut g = Graph::new();
    let x = g.input::<Vec<f64>>("x");
    let sum = g.all_reduce("sum", take(&x), Sum);
    g.output("sum", &sum);
    g.output("x", &x);
    let world = World::local(1).unwrap().remove(0);
    let error = g.compile_for(&world).unwrap_err();
    insta::assert_snapshot!(error, @"'sum' takes 'x' by value, but the output 'x' shares it as an Arc: read it by reference instead");
    let mut g = Graph::new();
    let x = g.input::<Vec<f64>>("x");
    let _ = (g.all_reduce("sum", take(&x), Sum), g.all_reduce("again", take(&x), Sum));
    insta::assert_snapshot!(g.compile_for(&world).unwrap_err(), @"'sum' and 'again' both take 'x' by value: only one node can, let the other read it by reference");
}
