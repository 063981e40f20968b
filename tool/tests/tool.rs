//! The tool from the command line: its output, its messages for bad input, and its exit codes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};

mod support;

use support::{assert_snapshot, printed, refused, tool};

/// Returns the message of `plan` for a graph on its standard input.
fn fault(graph: &[u8]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["plan", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The tool may stop before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(graph);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn plans_print_as_they_did() {
    for (graph, policy) in [("worked", "per-operator"), ("mixed", "ranked"), ("loops", "per-operator")] {
        for format in ["text", "json", "dot", "svg"] {
            let text = printed(&["plan", &format!("graphs/{graph}.json"), "--policy", policy, "--format", format]);
            assert_snapshot(&format!("{graph}.{}", if format == "text" { "txt" } else { format }), &text);
        }
    }
}

#[test]
fn plans_of_ranks_print_as_they_did() {
    for format in ["text", "json", "svg"] {
        let text = printed(&["plan", "graphs/ranks.json", "--ranks", "3", "--format", format]);
        assert_snapshot(&format!("ranks.{}", if format == "text" { "txt" } else { format }), &text);
    }
    let simulated = printed(&["simulate", "graphs/ranks.json", "--ranks", "3", "--latency-us", "3", "--cores", "1"]);
    assert!(simulated.ends_with("3 ranks, 11 nodes, 5 of them exchange values, makespan 46.002 us\n"), "{simulated}");
    let verified = printed(&["verify", "graphs/ranks.json", "--ranks", "3"]);
    assert_eq!(verified.lines().count(), 7);
    assert!(
        verified.lines().all(|line| line.ends_with(": keeps every edge on 3 ranks, and no rank waits for ever")),
        "{verified}"
    );
}

#[test]
fn a_graph_without_ranks_is_divided() {
    // Seen to fail with nodes that stay on all ranks.
    let text = printed(&["plan", "graphs/worked.json", "--ranks", "2"]);
    assert!(text.contains("\nrank 1: ") && text.contains("receive from rank"), "{text}");
}

#[test]
fn what_does_not_fit_several_ranks_is_refused() {
    let plan = |more: &[&str]| refused(&[&["plan", "graphs/ranks.json", "--ranks", "3"], more].concat());
    assert_eq!(
        plan(&["--format", "dot"]).1,
        "error: --format dot draws the graph of one rank: use --format svg for several, or leave out --ranks\n"
    );
    assert_eq!(plan(&["--latency-us=-1"]).1, "error: links have a latency of -1.0 us: a time is from 0 to 10^12\n");
    let simulate = refused(&["simulate", "graphs/ranks.json", "--ranks", "3", "--seed", "1"]).1;
    assert_eq!(simulate, "error: --seed, --replay and --explore are for one rank: leave out --ranks\n");
}

#[test]
fn simulations_print_as_they_did() {
    let call = ["simulate", "graphs/worked.json", "--policy", "per-operator", "--seed", "7", "--compute", "2", "--format"];
    for (format, name) in [("text", "seven.txt"), ("json", "seven.json"), ("perfetto", "seven.trace.json"), ("svg", "seven.svg")]
    {
        assert_snapshot(name, &printed(&[&call[..], &[format]].concat()));
    }
    let trace: serde_json::Value = serde_json::from_str(&printed(&[&call[..], &["perfetto"]].concat())).unwrap();
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    assert_eq!(slices.count(), 9);
}

#[test]
fn a_simulation_is_replayed_from_what_it_printed() {
    // Seen to fail with the choices left out.
    let call = ["simulate", "graphs/worked.json", "--policy", "ready-set", "--compute", "1"];
    let seeded = printed(&[&call[..], &["--seed", "11"]].concat());
    let choices = seeded.lines().last().and_then(|line| line.strip_prefix("choices ")).unwrap();
    assert_eq!(printed(&[&call[..], &["--replay", choices]].concat()), seeded);
    assert_ne!(printed(&call), seeded);
}

#[test]
fn comparisons_print_as_they_did() {
    for (format, name) in [("text", "compare.txt"), ("json", "compare.json"), ("svg", "compare.svg")] {
        assert_snapshot(name, &printed(&["compare", "graphs/worked.json", "--max-streams", "2", "--format", format]));
    }
}

#[test]
fn plans_that_were_printed_are_verified() {
    let dir = std::env::temp_dir().join(format!("anabranch-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let plan = dir.join("plan.json");
    let path = plan.to_str().unwrap();
    printed(&["plan", "graphs/mixed.json", "--format", "json", "-o", path]);
    let verify = ["verify", "graphs/mixed.json", "--plan", path];
    assert_eq!(printed(&verify), format!("{path}: keeps every edge, and every wait is needed\n"));
    let text = std::fs::read_to_string(&plan).unwrap();
    let mut form: serde_json::Value = serde_json::from_str(&text).unwrap();
    let programs = form["programs"].as_array_mut().unwrap();
    let steps = programs.iter_mut().map(|program| program["steps"].as_array_mut().unwrap());
    steps.for_each(|steps| steps.retain(|step| step.get("wait").is_none()));
    std::fs::write(&plan, form.to_string()).unwrap();
    let (code, message) = refused(&verify);
    assert!(code == 1 && message.contains("nothing orders node"), "{message}");
    for (old, new, expected) in [
        ("\"run\": \"loss\"", "\"run\": \"lost\"", "the graph has no node 'lost'"),
        ("\"device\": \"host\"", "\"device\": \"moon\"", "streams[2].device: a device's ordinal or \"host\""),
        ("\"record\": 1", "\"recorded\": 1", "unknown variant `recorded`"),
        ("\"streams\": [\n    {\n      \"id\": 0", "\"streams\": [\n    {\n      \"id\": 9", "there is no stream 0"),
    ] {
        assert!(text.contains(old), "{old}");
        std::fs::write(&plan, text.replacen(old, new, 1)).unwrap();
        let (code, message) = refused(&verify);
        assert!(code == 1 && message.contains(expected) && message.contains(path), "{message}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_policy_is_verified() {
    let text = printed(&["verify", "graphs/mixed.json"]);
    assert_eq!(text.lines().count(), 7);
    assert!(text.lines().all(|line| line.contains("keeps every edge with")), "{text}");
    assert_eq!(printed(&["verify", "graphs/mixed.json", "--policy", "single"]).lines().count(), 1);
}

#[test]
fn all_orders_are_explored() {
    let explore = |orders: &str| printed(&["simulate", "graphs/worked.json", "--explore", orders]);
    assert_eq!(explore("10"), "10 orders tried, and there are more: each of these ends, without a race\n");
    assert!(explore("100000").contains(" orders, and no others: each ends, without a race"));
    assert_eq!(refused(&["simulate", "graphs/worked.json", "--explore", "0"]).0, 2);
    assert_eq!(refused(&["simulate", "graphs/worked.json", "--explore", "5", "--format", "svg"]).0, 2);
}

#[test]
fn bad_graphs_are_named_by_place() {
    // Each message was seen with the path that it has here.
    let node = |fields: &str| {
        format!(r#"{{"nodes": [{{"name": "a", "backend": "gpu"}}, {{"name": "b", "backend": "gpu", {fields}}}]}}"#)
    };
    let cases = [
        (node(r#""inputs": [{"node": "c"}]"#), "nodes[1].inputs[0].node: there is no node named 'c'"),
        (node(r#""after": ["a", "x"]"#), "nodes[1].after[1]: there is no node named 'x'"),
        (
            r#"{"nodes": [{"name": "alpha", "backend": "cpu", "after": ["alpa"]}]}"#.into(),
            "nodes[0].after[0]: there is no node named 'alpa'; did you mean 'alpha'?",
        ),
        (
            node(r#""inputs": [{"node": "a", "memory": "disk"}]"#),
            "nodes[1].inputs[0].memory: unknown variant `disk`, expected `cpu` or `gpu` at line 1",
        ),
        (
            node(r#""inputs": [{"node": "a", "output": -1}]"#),
            "nodes[1].inputs[0].output: invalid value: integer `-1`, expected u32",
        ),
        (node(r#""inputs": [{"node": "a", "output": 4294967296}]"#), "nodes[1].inputs[0].output: invalid value"),
        (node(r#""cost_us": -0.5"#), "nodes[1].cost_us: the cost is -0.5 us; it must be from 0 to 10^12"),
        (node(r#""cost_us": 1e999"#), "nodes[1].cost_us: number out of range"),
        (node(r#""devices": [1024]"#), "nodes[1].devices: device 1024 is out of range: the largest is 1023"),
        (node(r#""devices": [1, 1]"#), "node 'b' names device 1 twice"),
        (node(r#""colour": "red""#), "nodes[1].colour: unknown field `colour`, expected one of `name`, `backend`"),
        (node(r#""backend": "cpu""#), "nodes[1]: duplicate field `backend` at line 1"),
        (node(r#""after": ["b"]"#), "node 'b' has an edge to itself: remove it"),
        (
            r#"{"nodes": [{"name": "a", "backend": "gpu"}, {"name": "a", "backend": "cpu"}]}"#.into(),
            "nodes[1].name: the name 'a' is that of nodes[0]",
        ),
        (r#"{"nodes": [{"name": "a"}]}"#.into(), "nodes[0]: missing field `backend` at line 1"),
        (
            r#"{"nodes": [{"name": "a", "backend": "gpu", "after": ["b"]}, {"name": "b", "backend": "gpu", "after": ["a"]}]}"#
                .into(),
            "the nodes 'a' -> 'b' -> 'a' wait for each other in a cycle",
        ),
        (r#"{"nodes": [], "outputs": [{"node": "z"}]}"#.into(), "outputs[0].node: there is no node named 'z'"),
        (r#"{"nodes": [], "edges": [["a"]]}"#.into(), "edges[0]: invalid length 1, expected a tuple of size 2"),
        (r#"{"nodes": []} {}"#.into(), "trailing characters at line 1"),
        (r#"{"nodes": ["#.into(), "nodes: EOF while parsing a list at line 1"),
        ("{".into(), "EOF while parsing an object at line 1"),
        (r#"{"nodes": [{"name": "", "backend": "gpu"}]}"#.into(), "nodes[0].name: a node needs a name"),
        (String::new(), "the text is empty: it should be JSON"),
        ("[]".into(), "invalid type: sequence, expected an object at line 1"),
        (r#"{"nodes": [["a", "gpu"]]}"#.into(), "nodes[0]: invalid type: sequence, expected an object at line 1"),
        (node(r#""inputs": [["a"]]"#), "nodes[1].inputs[0]: invalid type: sequence, expected an object at line 1"),
    ];
    for (graph, expected) in cases {
        let message = fault(graph.as_bytes());
        assert!(message.starts_with(&format!("error: -: {expected}")), "{graph}\n{message}");
    }
}

#[test]
fn limits_are_errors() {
    // Seen to crash with a stack overflow where nesting has no bound, and to print all of a name that has no
    // end.
    let named = |name: &str| format!(r#"{{"nodes": [{{"name": "{name}", "backend": "gpu"}}]}}"#);
    assert!(fault(named(&"n".repeat(257)).as_bytes()).contains("is 257, the limit is 256"));
    assert_eq!(tool(&["plan", "graphs/worked.json"]).status.code(), Some(0));
    for nested in ["[", "{\"nodes\":", "{\"a\":["] {
        let message = fault(nested.repeat(1_000_000).as_bytes());
        assert!(message.len() < 600, "{message}");
    }
    let deep = format!(r#"{{"nodes": [{{"name": "a", "backend": "gpu", "inputs": {}{}}}]}}"#, "[".repeat(100), "]".repeat(100));
    assert!(fault(deep.as_bytes()).contains("nodes[0].inputs[0]"));
    for garbage in [&b"x"[..], b"\xff", b"\"", b" ", b"{\"", b"1"] {
        let message = fault(&garbage.repeat(100_000_000 / garbage.len()));
        assert!(message.len() < 600, "{}", &message[..600]);
    }
    let devices: Vec<String> = (0..1_025).map(|device| (device % 1_024).to_string()).collect();
    let many = format!(r#"{{"nodes": [{{"name": "a", "backend": "gpu", "devices": [{}]}}]}}"#, devices.join(","));
    assert!(fault(many.as_bytes()).contains("nodes[0].devices: the list is longer than 1024"));
}

#[test]
fn exit_codes_tell_who_is_at_fault() {
    assert_eq!(refused(&["plan", "graphs/none.json"]).0, 2);
    assert!(refused(&["plan", "graphs/none.json"]).1.starts_with("error: graphs/none.json: cannot read: No such file"));
    assert_eq!(refused(&["plan", "graphs"]).0, 2);
    assert_eq!(refused(&["plan"]).0, 2);
    assert_eq!(refused(&["plan", "graphs/worked.json", "--policy", "best"]).0, 2);
    assert_eq!(refused(&["plan", "graphs/worked.json", "--max-streams", "0"]).0, 2);
    assert_eq!(refused(&["simulate", "graphs/worked.json", "--hand-off-us", "-1"]).0, 2);
    let (code, message) = refused(&["plan", "graphs/worked.json", "--policy", "single", "--max-streams", "2"]);
    assert_eq!(
        (code, &message[..]),
        (2, "error: --max-streams is for --policy ranked and critical-path: the others take what they need\n")
    );
    let (code, message) = refused(&["plan", "graphs/mixed.json", "--max-streams", "1"]);
    assert!(code == 1 && message.contains("policy 'ranked' has at most 1 streams for 2 devices"), "{message}");
    let (code, message) = refused(&["plan", "graphs/worked.json", "-o", "nowhere/plan.txt"]);
    assert!(code == 2 && message.starts_with("error: nowhere/plan.txt: cannot write"), "{message}");
}

#[test]
fn help_shows_examples() {
    for command in [&[][..], &["plan"], &["simulate"], &["verify"], &["compare"], &["pipeline"]] {
        let help = printed(&[command, &["--help"]].concat());
        assert!(help.contains("Example"), "{help}");
    }
}

#[test]
fn the_ending_of_the_file_says_the_format() {
    let dir = std::env::temp_dir().join(format!("anabranch-endings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (ending, start) in [("svg", "<svg"), ("json", "{"), ("dot", "digraph"), ("txt", "policy")] {
        let path = dir.join(format!("plan.{ending}"));
        printed(&["plan", "graphs/worked.json", "-o", path.to_str().unwrap()]);
        assert!(std::fs::read_to_string(path).unwrap().starts_with(start), "{ending}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn endings_without_a_format_are_refused() {
    // Seen to write a table to it.
    let dir = std::env::temp_dir().join(format!("anabranch-no-endings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("plan.png");
    let out = path.to_str().unwrap();
    for (command, formats) in
        [("plan", "text, json, dot, svg"), ("simulate", "text, json, svg, perfetto"), ("compare", "text, json, svg")]
    {
        let expected = format!(
            "error: {out}: no format ends in .png: end it in .txt or one of {formats}, or add --format with one of them\n"
        );
        assert_eq!(refused(&[command, "graphs/worked.json", "-o", out]), (2, expected));
        assert!(!path.exists());
    }
    printed(&["plan", "graphs/worked.json", "-o", out, "--format", "svg"]);
    let bare = dir.join("plan");
    printed(&["plan", "graphs/worked.json", "-o", bare.to_str().unwrap()]);
    let report = dir.join("report.svg");
    let explore = ["simulate", "graphs/worked.json", "--explore", "5", "-o", report.to_str().unwrap()];
    assert_eq!(refused(&explore), (2, "error: --explore reports in text: let the file end in .txt\n".into()));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn choices_that_there_are_not_are_refused() {
    // Seen to be taken for others.
    let (code, message) = refused(&["simulate", "graphs/worked.json", "--compute", "1", "--replay", "9,9,9"]);
    assert_eq!(code, 2);
    assert!(message.starts_with("error: choice number 0 to replay, counted from 0, is 9, and there are "), "{message}");
}

#[test]
fn a_plan_that_is_given_as_a_graph_is_called_one() {
    let plan = printed(&["plan", "graphs/worked.json", "--format", "json"]);
    let told = fault(plan.as_bytes());
    assert!(told.ends_with("; this looks like a plan, which `anabranch verify GRAPH --plan PLAN` reads\n"), "{told}");
}

#[test]
fn files_that_are_not_plain_utf_8_are_named() {
    // Seen to be called "expected value at line 1 column 1", all of them.
    let graph = r#"{"nodes": [{"name": "a", "backend": "gpu"}]}"#;
    let wide =
        |bytes: fn(u16) -> [u8; 2], mark: &str| format!("{mark}{graph}").encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    let (mark, utf_16) = ("\u{feff}", "is UTF-16: save it as UTF-8\n");
    for (bytes, expected) in [
        (wide(u16::to_le_bytes, mark), utf_16),
        (wide(u16::to_be_bytes, mark), utf_16),
        (wide(u16::to_le_bytes, ""), "is UTF-16, or binary: save it as UTF-8\n"),
        (wide(u16::to_be_bytes, ""), "is UTF-16, or binary: save it as UTF-8\n"),
        (format!("{mark}{graph}").into_bytes(), "begins with a byte order mark: save it as UTF-8 without one\n"),
        (b"digraph { a -> b }\n".to_vec(), "the text is not JSON: it begins with 'digraph { a -> b }'\n"),
        (b" nodes:\n  - a\n".to_vec(), "the text is not JSON: it begins with 'nodes:'\n"),
        (b"\x89PNG\r\n".to_vec(), "is not UTF-8 text\n"),
    ] {
        assert_eq!(fault(&bytes), format!("error: -: {expected}"));
    }
}

#[test]
fn texts_that_are_not_plain_json_are_named() {
    let fault = |text: &str| anabranch::graph::Shape::from_json(text).unwrap_err().to_string();
    assert_eq!(fault("\u{feff}{}"), "the text begins with a byte order mark: save it as UTF-8 without one");
    assert_eq!(fault("{\0\"\0"), "the text is UTF-16, or binary: save it as UTF-8");
    assert_eq!(fault("\0{\0\""), "the text is UTF-16, or binary: save it as UTF-8");
    assert_eq!(fault(" \n"), "the text is empty: it should be JSON");
    assert_eq!(fault("<svg>"), "the text is not JSON: it begins with '<svg>'");
}

#[test]
fn what_one_policy_refuses_is_said_beside_the_others() {
    let text = printed(&["compare", "graphs/mixed.json", "--max-streams", "1"]);
    assert!(text.ends_with("policy 'ranked' has at most 1 streams for 2 devices: give it one for each\n"), "{text}");
    assert!(text.contains("\nsingle "), "{text}");
}

#[test]
fn plans_and_graphs_are_not_taken_for_each_other() {
    let (code, message) = refused(&["verify", "graphs/mixed.json", "--plan", "graphs/mixed.json"]);
    assert!(code == 1 && message.ends_with(": is it what `anabranch plan --format json` prints?\n"), "{message}");
    assert_eq!(refused(&["verify", "-", "--plan", "-"]).0, 2);
}
