//! Loops and branches as data: descriptions that are read, refusals and their places, and round trips.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;

use anabranch::graph::{Backend, Control, Edge, EdgeKind, Memory, Shape};

fn loops() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/graphs/loops.json")).unwrap()
}

fn fault(graph: &str) -> String {
    let error = Shape::from_json(graph).unwrap_err();
    assert!(error.is_invalid_graph());
    error.to_string()
}

#[test]
fn loops_and_branches_come_back_as_they_were_written() {
    // Seen to fail with arms in the order of a stack.
    let shape = Shape::from_json(&loops()).unwrap();
    let written = shape.to_json();
    assert_eq!(Shape::from_json(&written).unwrap(), shape);
    assert_eq!(Shape::from_json(&written).unwrap().to_json(), written);
    let indented = "          \"nodes\": [\n            {\n              \"name\": \"left\"";
    assert!(written.contains(indented), "{written}");
}

#[test]
fn readings_of_states_come_back_in_their_places() {
    // Seen to fail with readings that are written before all others.
    let text = r#"{"nodes": [{"name": "x", "backend": "cpu"}, {"name": "loop", "inputs": [{"node": "x"}, {"node": "x"}], "repeat": {"body": {"nodes": [
        {"name": "a", "backend": "cpu", "inputs": [{"state": 1}]},
        {"name": "b", "backend": "cpu", "inputs": [{"state": 0}, {"node": "a"}, {"state": 1}, {"node": "a"}], "after": ["a"]},
        {"name": "c", "backend": "cpu", "inputs": [{"state": 1}]}
    ]}, "iterations": 1}}]}"#;
    let shape = Shape::from_json(text).unwrap();
    let written = shape.to_json();
    assert_eq!(Shape::from_json(&written).unwrap(), shape, "{written}");
    assert_ne!(
        Shape::from_json(&text.replace(r#"{"state": 0}, {"node": "a"}"#, r#"{"node": "a"}, {"state": 0}"#)).unwrap(),
        shape
    );
    let Some(Control::Repeat { body, .. }) = shape.nodes()[1].control.as_deref() else { panic!("it is a loop") };
    // With the middle gone, the rest is in place.
    let mut expected = Shape::new();
    let a = expected.node("a", Backend::Cpu);
    expected.read_state(1, a);
    assert_eq!(body.section(&["a"], &["a"]).unwrap(), expected);
}

#[test]
fn loops_of_loops_that_take_for_ever_are_drawn_with_a_bound() {
    // Seen to draw boxes from NaN to NaN, and to say that it takes inf s.
    let mut graph = r#"{"nodes": [{"name": "work", "backend": "gpu"}]}"#.to_owned();
    for _ in 0..40 {
        graph = format!(
            r#"{{"nodes": [{{"name": "loop", "repeat": {{"iterations": 1000000000, "body": {graph}}}}}, {{"name": "next", "backend": "gpu", "after": ["loop"]}}]}}"#
        );
    }
    let schedule = Shape::from_json(&graph).unwrap().schedule_with(&anabranch::policy::PerOperator).unwrap();
    let spans = schedule.spans();
    assert_eq!((spans[0].end_us, spans[1].end_us - spans[1].start_us), (1e12, 1.0));
    let picture = schedule.to_svg(&spans);
    assert!(!picture.contains("inf") && !picture.contains("NaN"), "{picture}");
    assert!(picture.contains("takes ≥ 1000000 s, critical path ≥ 1000000 s"), "{picture}");
    assert!(picture.contains("<title>loop · 1000000000 times on stream 0: ≥ 1000000 s from 0 µs&#10;"), "{picture}");
    assert!(picture.contains("<title>next on stream 0: 1 µs from 1000000 s&#10;"), "{picture}");
}

#[test]
fn a_control_runs_where_its_nodes_do_unless_it_is_said() {
    let shape = Shape::from_json(&loops()).unwrap();
    let backends: Vec<Backend> = shape.nodes().iter().map(|node| node.backend).collect();
    assert_eq!(backends, [Backend::Mixed, Backend::Gpu, Backend::Gpu, Backend::Cpu, Backend::Cpu]);
    // The value of the control is read in the memory of the control.
    let last = Edge::new(shape.ids().nth(2).unwrap(), shape.ids().nth(4).unwrap(), read(None));
    assert!(shape.edges().contains(&last), "{:?}", shape.edges());
    assert_eq!(shape.read_memory(&last), Some(Memory::Gpu));
    let said = r#"{"nodes": [{"name": "a", "backend": "gpu", "branch": {"arms": []}}]}"#;
    assert_eq!(Shape::from_json(said).unwrap().nodes()[0].backend, Backend::Gpu);
    assert!(Shape::from_json(said).unwrap().to_json().contains("\"backend\": \"gpu\""));
}

fn read(memory: Option<Memory>) -> EdgeKind {
    EdgeKind::Data { output: 0, memory, metadata: false }
}

#[test]
fn bad_inner_graphs_are_named_by_place() {
    // Each message was seen with the path that it has here.
    let node = |fields: &str| format!("{{\"nodes\": [{{\"name\": \"a\", {fields}}}]}}");
    let body = |body: &str| node(&format!("\"repeat\": {{\"body\": {body}, \"iterations\": 1}}"));
    let cases = [
        (node(r#""repeat": {}"#), "nodes[0].repeat: missing field `body` at line 1 column 37"),
        (
            node(r#""repeat": {"body": {"nodes": []}, "times": 5}"#),
            "nodes[0].repeat.times: unknown field `times`, expected one of",
        ),
        (node(r#""repeat": [{"nodes": []}]"#), "nodes[0].repeat: invalid type: sequence, expected an object at line 1"),
        (
            node(r#""repeat": {"body": {"nodes": []}, "iterations": -1}"#),
            "nodes[0].repeat.iterations: invalid value: integer `-1`, expected u64",
        ),
        (
            node(r#""repeat": {"body": {"nodes": []}}"#),
            "nodes[0].repeat: a loop without a `condition` needs `iterations`: how often its body is run at line 1",
        ),
        (
            node(r#""backend": "cpu", "inputs": [{"node": "a", "take": true}]"#),
            "nodes[0]: only a loop or a branch says here what it takes: the body of any other node says it at line 1",
        ),
        (
            node(r#""inputs": [{"node": "a", "take": true}], "branch": {"arms": []}"#),
            "nodes[0]: a branch cannot take its selector, which is its first input: let it read that at line 1",
        ),
        (node(r#""branch": {"arms": {}}"#), "nodes[0].branch.arms: invalid type: map, expected a list"),
        (
            node(r#""branch": {"arms": [{"nodes": []}], "taken": 1}"#),
            "nodes[0].branch: arm 1 is taken, and there are 1, counted from 0",
        ),
        (
            node(r#""branch": {"arms": []}, "repeat": {"body": {"nodes": []}, "iterations": 1}"#),
            "nodes[0]: a node is a `repeat` or a `branch`, not both at line 1",
        ),
        (body("5"), "nodes[0].repeat.body: invalid type: integer `5`, expected an object at line 1 column 45"),
        (body("[]"), "nodes[0].repeat.body: invalid type: sequence, expected an object at line 1 column 44"),
        (body(r#"{"nodes": [{"name": "b"}]}"#), "nodes[0].repeat.body.nodes[0]: missing field `backend` at line 1 column 68"),
        (
            body("{\n\"nodes\": [\n  {\"name\": \"b\", \"backend\": \"tpu\"}]}"),
            "nodes[0].repeat.body.nodes[0].backend: unknown variant `tpu`, expected one of `cpu`, `mixed`, `gpu` at line 3 column 32",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu", "after": ["a"]}]}"#),
            "nodes[0].repeat.body.nodes[0].after[0]: 'a' is outside of this graph: the loop or branch around can read it, or come after it",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu"}, {"name": "b", "backend": "cpu"}]}"#),
            "nodes[0].repeat.body.nodes[1].name: the name 'b' is that of nodes[0].repeat.body.nodes[0]",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu", "after": ["b"]}]}"#),
            "nodes[0].repeat.body: node 'b' has an edge to itself: remove it",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu", "inputs": [{"state": 0}]}]}"#),
            "nodes[0].repeat.body.nodes[0].inputs[0].state: there is no state 0: the loop or branch around has 0, counted from 0",
        ),
        (
            node(r#""backend": "cpu", "inputs": [{"state": 1}]"#),
            "nodes[0].inputs[0].state: only graphs in loops and branches have states",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu", "inputs": [{"state": 0, "node": "b"}]}]}"#),
            "nodes[0].repeat.body.nodes[0].inputs[0]: an input is a `node` or a `state`, not both at line 1",
        ),
        (
            body(r#"{"nodes": [{"name": "b", "backend": "cpu", "inputs": [{"state": 0, "output": 1}]}]}"#),
            "nodes[0].repeat.body.nodes[0].inputs[0]: a state is read where it is, and whole: it has no `output`",
        ),
        (node(r#""backend": "cpu", "inputs": [{}]"#), "nodes[0].inputs[0]: missing field `node` at line 1"),
        (node(r#""branch": {"arms": [{"nodes": []}, {}]}"#), "nodes[0].branch.arms[1]: missing field `nodes` at line 1"),
    ];
    for (graph, expected) in cases {
        let message = fault(&graph);
        assert!(message.starts_with(expected), "{graph}\n{message}\n{expected}");
    }
}

/// A graph with nested graphs, `depth` levels deep.
fn nested(depth: usize) -> String {
    let open = r#"{"nodes": [{"name": "a", "repeat": {"iterations": 1, "body": "#;
    format!("{}{}{}", open.repeat(depth), r#"{"nodes": [{"name": "b", "backend": "gpu"}]}"#, "}}]}".repeat(depth))
}

#[test]
fn graphs_nest_sixty_four_deep_and_no_deeper() {
    let shape = Shape::from_json(&nested(64)).unwrap();
    assert_eq!(Shape::from_json(&shape.to_json()).unwrap(), shape);
    assert_eq!(shape.schedule_with(&anabranch::policy::Single).unwrap().inner().len(), 64);
    for depth in [65, 100_000] {
        let message = fault(&nested(depth));
        assert!(
            message.ends_with(".nodes[0].repeat.body: graphs are nested more than 64 deep") || message.len() < 600,
            "{message}"
        );
        assert!(message.contains("deep"), "{message}");
    }
    // Endless brackets in place of a graph.
    for bracket in ["[", "{\"a\":", "{\"nodes\":["] {
        let message = fault(&format!(r#"{{"nodes": [{{"name": "a", "repeat": {{"body": {}"#, bracket.repeat(1_000_000)));
        assert!(message.len() < 600, "{message}");
    }
}

#[test]
fn what_is_nested_deeper_than_can_be_read_is_still_written() {
    let mut shape = Shape::new();
    shape.node("b", Backend::Gpu);
    for _ in 0..2_000 {
        let mut around = Shape::new();
        around.node("a", Backend::Gpu);
        let body = Arc::new(std::mem::replace(&mut shape, around));
        let control = Control::Repeat { condition: None, body, iterations: 2, max_iterations: None };
        shape.nodes_mut()[0].control = Some(Arc::new(control));
    }
    let text = shape.to_json();
    assert_eq!(text.matches("\"repeat\"").count(), 2_000);
    assert!(fault(&text).contains("deep"));
}

/// Breaks a printed plan.
type Breaks = fn(&mut serde_json::Value);

#[test]
fn plans_with_inner_graphs_are_verified_as_they_are_printed() {
    // Seen to fail with a wait taken out of an inner program.
    let dir = std::env::temp_dir().join(format!("anabranch-loops-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let plan = dir.join("plan.json");
    let path = plan.to_str().unwrap();
    let tool = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(args)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(tool(&["plan", "graphs/loops.json", "-o", path]).0);
    let verify = ["verify", "graphs/loops.json", "--plan", path];
    assert_eq!(tool(&verify), (true, String::new()));
    let text = std::fs::read_to_string(&plan).unwrap();
    let broken: [(Breaks, &str); 4] = [
        (
            |plan| {
                let body = &mut plan["inner"][1];
                assert_eq!(body["path"], "solve/body");
                let programs = body["programs"].as_array_mut().unwrap();
                programs
                    .iter_mut()
                    .for_each(|program| program["steps"].as_array_mut().unwrap().retain(|step| step.get("wait").is_none()));
            },
            "in 'solve/body': nothing orders node 'add' after",
        ),
        (|plan| _ = plan["inner"].as_array_mut().unwrap().pop(), "inner: there is no 'solve/body/piece/arm 1'"),
        (|plan| plan["inner"][0]["path"] = "x".into(), "inner: there is no 'solve/condition'"),
        (
            |plan| {
                let first = plan["inner"][0].clone();
                plan["inner"].as_array_mut().unwrap().push(first);
            },
            "inner: the graph has no 'solve/condition'",
        ),
    ];
    for (breaks, expected) in broken {
        let mut form: serde_json::Value = serde_json::from_str(&text).unwrap();
        breaks(&mut form);
        std::fs::write(&plan, form.to_string()).unwrap();
        let (is_ok, message) = tool(&verify);
        assert!(!is_ok && message.contains(expected), "{message}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
