//! Published results: `cases/pipelines.json`.

use anabranch::phases::{Beat, Bound, Method, Work};
use serde_json::Value;

use super::{ids, phases};

fn cases() -> Value {
    serde_json::from_str(include_str!("../cases/pipelines.json")).unwrap()
}

/// The chain of a case.
fn chain(case: &Value) -> Work {
    let mut work = Work::new();
    let capacities = case["resources"].as_object().unwrap();
    let resources: Vec<_> = capacities.iter().map(|(name, n)| (name, work.resource(name, n.as_u64().unwrap() as u32))).collect();
    let mut before = None;
    for node in case["chain"].as_array().unwrap() {
        let resource = resources.iter().find(|(name, _)| node[1] == name.as_str()).unwrap().1;
        let node = work.node(node[0].as_str().unwrap().to_owned(), resource, node[2].as_f64().unwrap());
        before.inspect(|&before| work.edge(before, node, 1));
        before = Some(node);
    }
    work
}

#[test]
fn known_chains_have_the_known_period_latency_and_utilisation() {
    // Seen to fail with a latency from the start of the iteration.
    let mut count = 0;
    for chain_case in cases().as_array().unwrap().iter().filter(|case| case["chain"].is_array()) {
        // The cases with an order are checked in `src/phases/list.rs`.
        for case in chain_case["cases"].as_array().unwrap().iter().filter(|case| case["order"].is_null()) {
            let mut work = chain(chain_case);
            let given: Vec<u32> = case["phases"].as_array().unwrap().iter().map(|phase| phase.as_u64().unwrap() as u32).collect();
            ids(4).into_iter().zip(&given).for_each(|(node, phase)| work.phase(node, *phase));
            let phasing = work.written().unwrap();
            assert_eq!(phasing.period_us(), case["period"].as_f64().unwrap(), "{} {case}", chain_case["id"]);
            assert_eq!(phasing.latency_us(), case["latency"].as_f64().unwrap(), "{} {case}", chain_case["id"]);
            assert!(phasing.is_exact() && phasing.method() == Method::Given);
            if let Some(share) = case["utilization"].as_f64() {
                let mean = phasing.loads().map(|load| load.share).sum::<f64>() / 2.0;
                assert!((mean - share).abs() < 1e-3, "{mean} {case}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 10);
}

#[test]
fn auto_finds_the_best_split_of_both_chains() {
    // Seen to fail with edges between phases that order nodes within an iteration.
    for case in cases().as_array().unwrap().iter().filter(|case| case["chain"].is_array()) {
        let phasing = chain(case).auto(2).unwrap();
        assert_eq!(phases(&phasing, 4), [1, 1, 2, 2], "{}", case["id"]);
        assert_eq!((phasing.period_us(), phasing.latency_us()), (2.0, 4.0));
        assert_eq!(phasing.method(), Method::Exact);
        assert!(phasing.is_exact() && phasing.loads().all(|load| load.share == 1.0));
        // `cases` are in the order of their names: CPU comes first.
        assert_eq!(phasing.bound(), Bound::Resource("CPU".into()));
        // Deeper pipelines have the same period, and are no better.
        assert_eq!(phases(&chain(case).auto(4).unwrap(), 4), [1, 1, 2, 2]);
    }
}

#[test]
fn a_phase_runs_the_item_of_its_schedule_iteration() {
    // Seen to fail with items that are not delayed by their phase.
    let cases = cases();
    let table = cases.as_array().unwrap().iter().find(|case| case["id"] == "iteration_table_D2").unwrap();
    let mut work = Work::new();
    let resources = ["a", "b"].map(|name| work.resource(name, 1));
    let nodes = resources.map(|resource| work.node(format!("n{}", resource.index()), resource, 1.0));
    work.edge(nodes[0], nodes[1], 1);
    (1..).zip(nodes).for_each(|(phase, node)| work.phase(node, phase));
    let spans = work.written().unwrap().simulate(4, Beat::Lockstep).unwrap();
    for (phase, node) in (1..=2).zip(nodes) {
        let row: Vec<Option<u64>> = table["phases"][phase.to_string()].as_array().unwrap().iter().map(Value::as_u64).collect();
        for (iteration, item) in row.into_iter().enumerate() {
            let span = spans.iter().find(|span| span.node == node && span.start_us == iteration as f64);
            // The table counts items from 1.
            assert_eq!(span.map(|span| span.item + 1), item, "phase {phase} in iteration {iteration}");
        }
    }
}

#[test]
fn a_phase_per_node_follows_the_topological_order() {
    // Seen to fail with nodes in the order of the input.
    let mut work = Work::new();
    let resource = work.resource("r", 1);
    let nodes: Vec<_> = (0..5).map(|node| work.node(format!("n{node}"), resource, 1.0)).collect();
    work.edge(nodes[3], nodes[0], 1);
    work.edge(nodes[0], nodes[1], 1);
    let plan = |work: &Work| phases(&work.each().unwrap(), 5);
    assert_eq!(plan(&work), [3, 4, 1, 2, 5]);
    work.together(&[nodes[1], nodes[4]]);
    assert_eq!(plan(&work), [3, 4, 1, 2, 4]);
    work.unpipelined(nodes[2]);
    assert_eq!(plan(&work), [2, 3, 0, 1, 3]);
    // Feedback to an earlier node: one phase for all nodes between.
    work.feedback(nodes[3], nodes[0], 1);
    assert_eq!(plan(&work), [1, 2, 0, 1, 2]);
}

#[test]
fn nodes_without_a_phase_are_unpipelined_if_others_have_one() {
    // Seen to fail with phase 1 for all of them.
    let mut work = Work::new();
    let resource = work.resource("r", 1);
    let nodes: Vec<_> = (0..3).map(|node| work.node(format!("n{node}"), resource, 1.0)).collect();
    assert_eq!(phases(&work.written().unwrap(), 3), [1, 1, 1]);
    work.unpipelined(nodes[0]);
    assert_eq!(phases(&work.written().unwrap(), 3), [0, 1, 1]);
    work.phase(nodes[1], 3);
    let phasing = work.written().unwrap();
    assert_eq!((phases(&phasing, 3), phasing.depth()), (vec![0, 3, 0], 3));
    assert_eq!(phasing.phase_of(ids(8)[7]), 0);
}
