//! `anabranch pipeline`: its output for the two sample systems, and its messages for bad calls.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

mod support;

use support::assert_snapshot;

const FLAT: &str = "app/systems/Flat.app.json";
const PIPED: &str = "app/systems/Piped.app.json";

fn printed(args: &[&str]) -> String {
    support::printed(&[&["pipeline"], args].concat())
}

fn refused(args: &[&str]) -> (i32, String) {
    support::refused(&[&["pipeline"], args].concat())
}

#[test]
fn the_samples_print_as_they_did() {
    for (file, name) in [(FLAT, "flat"), (PIPED, "piped")] {
        for (format, ending) in [("text", "txt"), ("json", "json"), ("svg", "svg"), ("perfetto", "trace.json")] {
            assert_snapshot(&format!("{name}.{ending}"), &printed(&[file, "--format", format]));
        }
    }
}

#[test]
fn a_proposal_is_printed_beside_the_phases_that_are_written() {
    for (format, ending) in [("text", "txt"), ("json", "json"), ("svg", "svg")] {
        assert_snapshot(&format!("flat-auto.{ending}"), &printed(&[FLAT, "--auto", "2", "--format", format]));
    }
    let form: serde_json::Value = serde_json::from_str(&printed(&[FLAT, "--auto", "2", "--format", "json"])).unwrap();
    let epoch = &form["hyperepochs"][0]["epochs"][0];
    let period = |plan: &str| epoch[plan]["period_us"].as_f64().unwrap();
    assert!(period("proposed") < period("written"));
    assert_eq!(epoch["proposed"]["passes"], serde_json::json!([[], ["top.filter", "top.source"], ["top.sink", "top.track"]]));
}

#[test]
fn the_example_of_the_page_prints_what_stands_there() {
    // Seen to fail with another cost in the page.
    let page = include_str!("../../docs/app-json.md");
    let example = page.split("## A whole example").nth(1).unwrap().split("\n## ").next().unwrap();
    let folder = std::env::temp_dir().join(format!("anabranch-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A block contains the file that the preceding text names last, or the output of the tool.
    let pieces: Vec<&str> = example.split("```").collect();
    let (mut files, mut output) = (0, "");
    for pair in pieces.chunks_exact(2) {
        let (kind, text) = pair[1].split_once('\n').unwrap();
        match kind {
            "text" => output = text,
            _ => {
                files += 1;
                std::fs::write(folder.join(pair[0].rsplit('`').nth(1).unwrap()), text).unwrap();
            }
        }
    }
    let output = output.strip_prefix("$ anabranch pipeline camera.app.json --auto 3\n").unwrap();
    let file = folder.join("camera.app.json");
    assert_eq!((files, &*printed(&[file.to_str().unwrap(), "--auto", "3"])), (5, output));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn times_of_a_report_have_one_unit() {
    // Seen to fail with a unit for each plan, and with one for the longest period.
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(FLAT)).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("units");
    for part in ["graphlets", "nodes", "systems"] {
        let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/app").join(part), folder.join(part));
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    let costs = std::fs::read_to_string(folder.join("systems/Chain_wcet.yaml")).unwrap();
    std::fs::write(folder.join("systems/Chain_wcet.yaml"), costs.replace("1000000", "100000")).unwrap();
    let file = folder.join("systems/Short.app.json");
    std::fs::write(&file, text).unwrap();
    // As written the period is 1.4 ms, and as proposed 0.8 ms.
    let report = printed(&[file.to_str().unwrap(), "--auto", "2"]);
    assert!(
        report.contains("period 1400 µs") && report.contains("period 800 µs") && report.contains("frame of 33000 µs"),
        "{report}"
    );
    assert!(!report.contains(" ms") && !report.contains(" us"), "{report}");
}

#[test]
fn a_trace_has_a_slice_for_each_node_of_each_item() {
    let trace: serde_json::Value = serde_json::from_str(&printed(&[PIPED, "--format", "perfetto"])).unwrap();
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    assert_eq!(slices.count(), 8 * 14);
}

#[test]
fn exit_codes_tell_whether_the_call_or_the_description_is_at_fault() {
    let none = "error: app/none.app.json: cannot read: No such file or directory (os error 2)\n";
    assert_eq!(refused(&["app/none.app.json"]), (2, none.into()));
    assert_eq!(refused(&["app"]), (2, "error: app: cannot read: it is a directory: name the description in it\n".into()));
    let (code, message) = refused(&["-"]);
    assert!(code == 2 && message.contains("name its file, not the standard input"), "{message}");
    assert_eq!(refused(&[PIPED, "--auto", "0"]).0, 2);
    assert_eq!(
        refused(&[PIPED, "--state", "FAST"]),
        (2, format!("error: {PIPED}: states: there is no state 'FAST'; there are 'STANDARD'\n"))
    );
    assert_eq!(
        refused(&[PIPED, "--epoch", "radar"]),
        (2, format!("error: {PIPED}: there is no epoch 'radar'; there are 'camera'\n"))
    );
    assert_eq!(printed(&[PIPED, "--state", "STANDARD", "--epoch", "camera"]), printed(&[PIPED]));
    let (code, message) = refused(&["app/nodes/Sink.node.json"]);
    assert_eq!((code, &message[..]), (1, "error: app/nodes/Sink.node.json: the application has no `stmSchedules`\n"));
    let (code, message) = refused(&["app/systems/Chain_wcet.yaml"]);
    assert!(
        code == 1 && message.starts_with("error: app/systems/Chain_wcet.yaml: the file must be a JSON object, with"),
        "{message}"
    );
}

#[test]
fn a_graph_and_a_description_are_told_apart() {
    // Seen to fail without the hints.
    let path = std::env::temp_dir().join(format!("anabranch-graph-{}.json", std::process::id()));
    std::fs::write(&path, r#"{"nodes": [{"name": "a", "backend": "cpu"}]}"#).unwrap();
    for (file, why) in [
        (path.to_str().unwrap(), "missing field `name` at line 1 column 44"),
        ("graphs/loops.json", "the application has no `stmSchedules`"),
    ] {
        let expected = format!("error: {file}: {why}; this looks like a graph, which `anabranch plan` reads\n");
        assert_eq!(refused(&[file]), (1, expected));
    }
    std::fs::remove_file(&path).unwrap();
    for command in ["plan", "simulate", "verify", "compare"] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let output = tool.args([command, PIPED]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        let hint = "; this looks like an application description, which `anabranch pipeline` reads\n";
        assert!(output.status.code() == Some(1) && message.ends_with(hint), "{command}: {message}");
    }
    // Neither.
    assert_eq!(refused(&["app/nodes/Sink.node.json"]).1.matches("looks like").count(), 0);
}

#[test]
fn mistakes_are_named_by_file_and_place() {
    // Seen to fail with an exit code of 2.
    let dir = std::env::temp_dir().join(format!("anabranch-pipeline-{}", std::process::id()));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/app");
    for folder in ["systems", "graphlets", "nodes"] {
        std::fs::create_dir_all(dir.join(folder)).unwrap();
        for file in std::fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), dir.join(folder).join(file.file_name())).unwrap();
        }
    }
    let file = dir.join("systems/Piped.app.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let path = file.to_str().unwrap();
    for (old, new, expected) in [
        (
            "\"top.filter\"",
            "\"top.filtre\"",
            "camera.passes[1][0]: there is no component or pass 'top.filtre'; 'top' has 'filter', 'sink'",
        ),
        ("\"top.track\"", "\"top.source\"", "camera.passes[2][1]: the pass 'top.source.SETUP' is scheduled twice, here and at"),
        (
            "\"period\": 33000000",
            "\"period\": -1",
            "main.period: invalid value: integer `-1`, expected a whole number from 0 on at line 22 column",
        ),
    ] {
        assert!(text.contains(old), "{old}");
        std::fs::write(&file, text.replacen(old, new, 1)).unwrap();
        let output = support::tool(&["pipeline", path]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains(path) && message.contains(expected), "{message}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
