//! Mistakes in a work: each error names the mistake, and says what to do.

use anabranch::Error;
use anabranch::graph::NodeId;
use anabranch::phases::{NODES_MAX, Resource, Work};

use super::ids;

/// Nodes a, b and c on one resource.
fn three() -> (Work, [NodeId; 3], Resource) {
    let mut work = Work::new();
    let resource = work.resource("GPU", 1);
    let nodes = ["a", "b", "c"].map(|name| work.node(name, resource, 1.0));
    (work, nodes, resource)
}

/// Returns the error of all ways to plan, which is the same.
fn fault(change: impl FnOnce(&mut Work, [NodeId; 3], Resource)) -> Error {
    let (mut work, nodes, resource) = three();
    change(&mut work, nodes, resource);
    let errors = [work.written(), work.each(), work.auto(2)].map(Result::unwrap_err);
    let [written, each, auto] = errors;
    assert!(written.is_invalid_graph());
    assert_eq!(written.to_string(), each.to_string());
    assert_eq!(written.to_string(), auto.to_string());
    written
}

fn message(change: impl FnOnce(&mut Work, [NodeId; 3], Resource)) -> String {
    fault(change).to_string()
}

/// The errors of `written` and of `auto` with two phases.
fn messages(change: impl FnOnce(&mut Work, [NodeId; 3])) -> [String; 2] {
    let (mut work, nodes, _) = three();
    change(&mut work, nodes);
    [work.written(), work.auto(2)].map(|result| result.unwrap_err().to_string())
}

#[test]
fn an_edge_to_an_earlier_phase_is_an_error_that_names_feedback() {
    // Seen to fail without the check.
    let [written, auto] = messages(|work, [a, b, _]| {
        work.edge(a, b, 1);
        work.phase(a, 2);
        work.phase(b, 1);
    });
    assert_eq!(
        written,
        "'b' is in phase 1 and depends on 'a' in phase 2, a later one: put 'b' in phase 2 or later, or make the edge feedback \
         (in a pipeline, by g.feedback and g.feed) if 'b' needs the value of an earlier item"
    );
    assert_eq!(
        auto,
        "no phase is left for node 'a': it cannot be in a phase before 2, which is fixed for 'a', nor in one after 1, which \
         is fixed for 'b'; change one of these"
    );
}

#[test]
fn feedback_to_a_later_phase_is_an_error() {
    // Seen to fail without the check.
    let [written, auto] = messages(|work, [a, b, _]| {
        work.feedback(a, b, 1);
        work.phase(a, 1);
        work.phase(b, 2);
    });
    assert_eq!(
        written,
        "the feedback from 'a' in phase 1 to 'b' in phase 2 leads to a later phase: put 'b' in phase 1 or earlier, or make \
         it an ordinary edge"
    );
    assert!(auto.starts_with("no phase is left for node 'b'"), "{auto}");
    // From an unpipelined node, which counts as phase 1.
    let [written, auto] = messages(|work, [a, b, _]| {
        work.feedback(a, b, 1);
        work.unpipelined(a);
        work.phase(b, 2);
    });
    assert!(written.starts_with("the feedback from 'a' in phase 1 to 'b' in phase 2"), "{written}");
    assert_eq!(
        auto,
        "no phase is left for node 'b': it cannot be in a phase before 2, which is fixed for 'b', nor in one after 1, because \
         'a', which is unpipelined, gives it feedback; change one of these"
    );
}

#[test]
fn feedback_within_a_phase_or_to_an_earlier_one_is_legal() {
    // Seen to fail with feedback that must leave its phase.
    let (mut work, [a, b, c], _) = three();
    work.feedback(a, a, 1);
    work.feedback(c, b, 1);
    work.phase(a, 1);
    work.phase(b, 1);
    work.phase(c, 2);
    assert_eq!(work.written().unwrap().depth(), 2);
}

#[test]
fn a_phase_beyond_the_depth_is_an_error() {
    let (mut work, [a, ..], _) = three();
    work.phase(a, 3);
    assert_eq!(
        work.auto(2).unwrap_err().to_string(),
        "no phase is left for node 'a': it cannot be in a phase before 3, which is fixed for 'a', nor in one after 2, the \
         depth; change one of these"
    );
    assert_eq!(work.auto(0).unwrap_err().to_string(), "the depth must be from 1 to 1024, not 0");
    assert_eq!(work.auto(1025).unwrap_err().to_string(), "the depth must be from 1 to 1024, not 1025");
}

#[test]
fn a_cycle_is_named_and_feedback_is_proposed() {
    let error = fault(|work, [a, b, c], _| {
        work.edge(a, b, 1);
        work.edge(b, c, 1);
        work.edge(c, b, 1);
    });
    assert_eq!(
        error.to_string(),
        "the nodes 'b' -> 'c' -> 'b' wait for each other in a cycle, for one item: remove one of these edges, or declare the \
         one whose value is of an earlier item as feedback"
    );
    assert_eq!(error.node(), Some("b"));
    let own = message(|work, [a, ..], _| work.edge(a, a, 1));
    assert!(own.starts_with("the nodes 'a' -> 'a' wait for each other"), "{own}");
}

#[test]
fn phases_are_from_1_to_1024() {
    for phase in [0, 1025, u32::MAX] {
        let error = fault(|work, [a, ..], _| work.phase(a, phase));
        assert_eq!(error.to_string(), format!("node 'a' is in phase {phase}: phases are from 1 to 1024"));
        assert_eq!(error.node(), Some("a"));
    }
    let (mut work, [a, ..], _) = three();
    work.phase(a, 0);
    work.phase(a, 1024);
    assert_eq!(work.written().unwrap().depth(), 1024);
}

#[test]
fn costs_are_numbers_from_0_to_10_to_the_12() {
    for cost_us in [-1.0, f64::NAN, f64::INFINITY, 1.1e12] {
        let text = message(|work, _, resource| _ = work.node("x", resource, cost_us));
        assert_eq!(text, format!("the cost of node 'x' is {cost_us} us: a cost is from 0 to 10^12"));
    }
    let text = message(|work, _, resource| (0..6).for_each(|node| _ = work.node(format!("x{node}"), resource, 1e12)));
    assert!(text.starts_with("the sum of all costs is 6000000000003 us, the limit is 4611686018427 us: "), "{text}");
    // In many phases, items take too long.
    let (mut work, [a, ..], resource) = three();
    work.node("x", resource, 1e12);
    work.phase(a, 9);
    let text = work.written().unwrap_err().to_string();
    assert!(text.starts_with("the sum of all costs, times the number of phases, is 9000000000027 us, the limit"), "{text}");
}

#[test]
fn ids_of_another_work_are_an_error() {
    // Seen to fail with a panic.
    let other = ids(9)[8];
    let expected =
        |what: &str| format!("{what} names node number 8, counted from 0, but the graph has 3: use the ids of this graph");
    assert_eq!(message(|work, [a, ..], _| work.edge(a, other, 1)), expected("an edge"));
    assert_eq!(message(|work, [a, ..], _| work.feedback(other, a, 1)), expected("feedback"));
    assert_eq!(message(|work, [a, ..], _| work.together(&[a, other])), expected("`together`"));
    assert_eq!(message(|work, _, _| work.phase(other, 1)), expected("a phase"));
    assert_eq!(message(|work, _, _| work.unpipelined(other)), expected("a phase"));
    let mut more = Work::new();
    let resource = ["r", "s"].map(|name| more.resource(name, 1))[1];
    assert_eq!(
        message(|work, _, _| _ = work.node("x", resource, 1.0)),
        "node 'x' names resource number 1, counted from 0, but there are 1: use the resources of this work"
    );
}

#[test]
fn nodes_that_are_kept_together_have_one_phase() {
    let text = message(|work, [a, b, c], _| {
        work.together(&[a, b]);
        work.together(&[b, c]);
        work.phase(a, 1);
        work.phase(c, 2);
    });
    assert_eq!(
        text,
        "'a' and 'c' are in one phase (together), but phase 1 is fixed for the first and phase 2 for the second: fix the same \
         for both"
    );
    let text = message(|work, [a, b, _], _| {
        work.together(&[a, b]);
        work.unpipelined(a);
        work.phase(b, 2);
    });
    assert!(text.contains("but unpipelined is fixed for the first and phase 2 for the second"), "{text}");
}

#[test]
fn names_are_given_and_unique_and_resources_can_do_something() {
    assert_eq!(
        message(|work, _, resource| _ = work.node("a", resource, 1.0)),
        "two nodes are named 'a': node names are unique in a graph, rename one"
    );
    assert_eq!(
        message(|work, _, resource| _ = work.node("", resource, 1.0)),
        "node number 3, counted from 0, has no name: give it one"
    );
    assert_eq!(message(|work, _, _| _ = work.resource("GPU", 1)), "two resources are named 'GPU': rename one");
    assert_eq!(message(|work, _, _| _ = work.resource("CPU", 0)), "resource 'CPU' has capacity 0: give it 1 or more");
    assert!(message(|work, _, _| _ = work.resource("x".repeat(257), 1)).starts_with("the length in bytes of the name 'xxxx"));
}

#[test]
fn there_are_limits_of_nodes_and_of_phases() {
    let text = message(|work, _, resource| (0..NODES_MAX).for_each(|node| _ = work.node(format!("n{node}"), resource, 1.0)));
    assert_eq!(text, "the number of nodes is 65539, the limit is 65536");
    let (mut work, _, resource) = three();
    (0..1022).for_each(|node| _ = work.node(format!("n{node}"), resource, 1.0));
    assert_eq!(work.each().unwrap_err().to_string(), "the number of phases is 1025, the limit is 1024");
}
