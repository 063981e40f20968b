//! Files that are missing, malformed or not text, and the place in each message.

use std::fs;
use std::path::PathBuf;

use anabranch::app::App;
use serde_json::json;

use super::Case;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("anabranch-app-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_missing_file_is_named_where_it_is_asked_for() {
    // Seen to fail with the place of the file that is missing.
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["subcomponents"]["top"]["componentType"] = json!("../y/Z.graphlet.json"));
    assert_eq!(
        case.fault(),
        "x.app.json: subcomponents.top.componentType: cannot read the file '../y/Z.graphlet.json': entity not found"
    );
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["stmSchedules"]["s"]["wcet"] = json!("./d.yaml"));
    assert_eq!(case.fault(), "x.app.json: stmSchedules.s.wcet: cannot read the file 'd.yaml': entity not found");
    for (file, expected) in [
        ("/N.node.json", "'/N.node.json' is no path relative to this file"),
        ("", "'' is no path relative to this file"),
        ("N.json", "the file 'N.json' is neither a node nor a graphlet: its name ends in .node.json or .graphlet.json"),
    ] {
        let mut case = Case::new();
        case.edit("T.graphlet.json", |graphlet| graphlet["subcomponents"]["a"]["componentType"] = json!(file));
        assert_eq!(case.fault(), format!("T.graphlet.json: subcomponents.a.componentType: {expected}"));
    }
}

#[test]
fn a_folder_and_a_pipe_are_no_files() {
    // Seen to wait for ever for a pipe that is opened.
    let folder = Folder::new("folder");
    let error = App::open(&folder.0).unwrap_err().to_string();
    assert!(error.ends_with("cannot read the file: it is a directory: name a file in it"), "{error}");
    let app = folder.0.join("x.app.json");
    fs::create_dir(folder.0.join("T.graphlet.json")).unwrap();
    fs::write(&app, json!({"name": "X", "subcomponents": {"t": {"componentType": "T.graphlet.json"}}}).to_string()).unwrap();
    let error = App::open(&app).unwrap_err().to_string();
    assert!(error.contains("x.app.json: subcomponents.t.componentType: cannot read the file"), "{error}");
    assert!(error.ends_with("it is a directory: name a file in it"), "{error}");
    let error = App::open(folder.0.join("none.app.json")).unwrap_err().to_string();
    assert!(error.ends_with("none.app.json: cannot read the file: No such file or directory (os error 2)"), "{error}");
    #[cfg(unix)]
    {
        let pipe = folder.0.join("pipe.app.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(App::open(&pipe).unwrap_err().to_string().ends_with("it is not a regular file"));
    }
}

#[test]
fn malformed_json_is_named_by_file_and_place() {
    // Each message was seen with the place that it has here, and some with serde's words.
    for (file, text, expected) in [
        ("x.app.json", "", "x.app.json: the file is empty: it must be a JSON object, with `name`, "),
        ("N.node.json", " \n", "N.node.json: the file is empty: it must be a JSON object, with `name`, `inputPorts`, "),
        (
            "T.graphlet.json",
            "a graphlet",
            "T.graphlet.json: the file must be a JSON object, with `subcomponents` and `connections`: expected value at line 1 column 1",
        ),
        ("x.app.json", "[]", "x.app.json: invalid type: list, expected an object at line 1 column 0"),
        (
            "x.app.json",
            "{\"name\": \"X\"} {}",
            "x.app.json: the file must be one JSON object, and no more: trailing characters at line 1 column 15",
        ),
        ("x.app.json", "{\"name\": 5}", "x.app.json: name: invalid type: integer `5`, expected a string at line 1 column 10"),
        (
            "x.app.json",
            r#"{"name": "X", "stmSchedules": {"s": {"hyperepochs": {"h": {"period": 1, "epochs": {"e": {}}}}}}}"#,
            "x.app.json: stmSchedules.s.hyperepochs.h.epochs.e: missing field `passes`",
        ),
        (
            "T.graphlet.json",
            "{\"subcomponents\": {\"a\": []}}",
            "T.graphlet.json: subcomponents.a: invalid type: list, expected an object",
        ),
        (
            "T.graphlet.json",
            "{\"connections\": [{\"src\": \"a.OUT\"}]}",
            "T.graphlet.json: connections[0]: missing field `dests`",
        ),
        ("N.node.json", "{\"name\": \"N\"}", "N.node.json: missing field `passes`"),
        ("N.node.json", "{\"name\": \"N\", \"passes\": []}", "N.node.json: passes: a node has at least one pass"),
        (
            "N.node.json",
            r#"{"name": "N", "passes": [{"name": "A", "processorTypes": ["TPU"]}]}"#,
            "N.node.json: passes[0].processorTypes[0]: unknown variant `TPU`, expected one of `CPU`, `GPU`",
        ),
        (
            "N.node.json",
            r#"{"name": "N", "passes": [{"name": "A", "processorTypes": []}]}"#,
            "N.node.json: passes[0].processorTypes: a pass has one processor, and not 0",
        ),
        (
            "N.node.json",
            r#"{"name": "N", "passes": [{"name": "A", "processorTypes": ["CPU"], "dependencies": ["B"]}]}"#,
            "N.node.json: passes[0].dependencies[0]: there is no pass 'B'; the node has 'A'",
        ),
        (
            "N.node.json",
            r#"{"name": "N", "passes": [{"name": "A", "processorTypes": ["CPU"], "dependencies": ["A"]}]}"#,
            "N.node.json: passes: passes depend on each other in a cycle: A -> A: remove one of the dependencies",
        ),
        (
            "N.node.json",
            r#"{"name": "N", "passes": [{"name": "A", "processorTypes": ["CPU"]}, {"name": "A", "processorTypes": ["CPU"]}]}"#,
            "N.node.json: passes[1].name: the name 'A' is that of passes[0]: give each its own",
        ),
    ] {
        assert_fault(file, text, expected);
    }
}

#[test]
fn values_of_a_wrong_type_are_named_by_the_types_of_json() {
    // Each message was seen with the words of serde.
    for (file, text, expected) in [
        (
            "T.graphlet.json",
            r#"{"connections": [{"src": "a.OUT", "dests": {"b.IN": {"fifo-size": -1}}}]}"#,
            "T.graphlet.json: connections[0].dests.b.IN.fifo-size: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        ),
        (
            "T.graphlet.json",
            r#"{"connections": [{"src": "a.OUT", "dests": {"b.IN": {"data-offset": 1.5}}}]}"#,
            "T.graphlet.json: connections[0].dests.b.IN.data-offset: invalid type: floating point `1.5`, expected a whole number at line 1",
        ),
        (
            "T.graphlet.json",
            r#"{"connections": 5}"#,
            "T.graphlet.json: connections: invalid type: integer `5`, expected a list at line 1",
        ),
        ("x.app.json", "{\"name\": {}}", "x.app.json: name: invalid type: object, expected a string at line 1 column 9"),
        ("x.app.json", "{\"name\": []}", "x.app.json: name: invalid type: list, expected a string at line 1 column 9"),
    ] {
        assert_fault(file, text, expected);
    }
}

#[test]
fn malformed_costs_are_named_by_file_and_place() {
    // Each message was seen with the place that it has here.
    for (file, text, expected) in [
        ("c.yaml", "p.top_a_pass_0: many\n", "c.yaml: p.top_a_pass_0: invalid type: string"),
        ("c.yaml", "p.top_a_pass_0: -5\n", "c.yaml: p.top_a_pass_0: the cost is -5.0 ns; it must be from 0 to 10^15"),
        ("c.yaml", "p.top_a_pass_0: 1e300\n", "c.yaml: p.top_a_pass_0: the cost is 1e300 ns; it must be from 0 to 10^15"),
        ("c.yaml", "p.top_a_pass_0: .nan\n", "c.yaml: p.top_a_pass_0: "),
        ("c.yaml", "- 1\n- 2\n", "c.yaml: "),
        ("c.yaml", "a: {b: 1}\n", "c.yaml: a: "),
    ] {
        assert_fault(file, text, expected);
    }
}

/// Checks the beginning of the error if a file has this text.
fn assert_fault(file: &str, text: &str, expected: &str) {
    let mut case = Case::new();
    case.set_text(file, text);
    let fault = case.fault();
    assert!(fault.starts_with(expected), "\n{fault}\n{expected}");
}

#[test]
fn keys_that_stand_twice_are_refused_and_unknown_ones_are_not_read() {
    // Seen to fail with a map that keeps the last value.
    for (file, text, expected) in [
        (
            "T.graphlet.json",
            r#"{"subcomponents": {"a": {"componentType": "N.node.json"}, "a": {"componentType": "N.node.json"}}}"#,
            "T.graphlet.json: subcomponents: the key 'a' stands twice at line 1",
        ),
        (
            "T.graphlet.json",
            r#"{"connections": [{"src": "a.OUT", "src": "a.OUT", "dests": {}}]}"#,
            "T.graphlet.json: connections[0]: duplicate field `src`",
        ),
        ("c.yaml", "a: 1\na: 2\n", "c.yaml: "),
    ] {
        let mut case = Case::new();
        case.set_text(file, text);
        let fault = case.fault();
        assert!(fault.starts_with(expected), "\n{fault}\n{expected}");
    }
    let mut case = Case::new();
    case.edit("x.app.json", |app| {
        app["logSpec"] = json!({"to": ["console"]});
        app["argv"] = json!(null);
        app["sensors"] = json!([1, {"a": 2}]);
        app["processes"]["p"]["argv"] = json!({"-x": true});
    });
    case.edit("T.graphlet.json", |graphlet| {
        graphlet["connections"][0]["dests"]["b.IN"] = json!({"type": "shmem", "strict": true, "new": 1})
    });
    assert!(case.open().unwrap().warnings().is_empty());
}

/// Returns the warnings if the value at a JSON pointer has this additional key.
fn warnings_of(file: &str, pointer: &str, key: &str) -> Vec<String> {
    let mut case = Case::new();
    case.edit(file, |form| form.pointer_mut(pointer).unwrap()[key] = json!(1));
    case.open().unwrap().warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn a_key_that_is_like_one_that_is_read_is_a_warning() {
    // Seen to fail without the keys of either file in the list, and with paths that serde writes.
    let dest = "/connections/0/dests/b.IN";
    for (file, pointer, key, expected) in [
        (
            "T.graphlet.json",
            dest,
            "fifo_size",
            "connections[0].dests.b.IN: the key 'fifo_size' is not read: did you mean 'fifo-size'?",
        ),
        (
            "T.graphlet.json",
            dest,
            "indrect",
            "connections[0].dests.b.IN: the key 'indrect' is not read: did you mean 'indirect'?",
        ),
        (
            "T.graphlet.json",
            dest,
            "dataOffset",
            "connections[0].dests.b.IN: the key 'dataOffset' is not read: did you mean 'data-offset'?",
        ),
        ("T.graphlet.json", "", "outputports", "the key 'outputports' is not read: did you mean 'outputPorts'?"),
        (
            "N.node.json",
            "/passes/0",
            "dependancies",
            "passes[0]: the key 'dependancies' is not read: did you mean 'dependencies'?",
        ),
        ("N.node.json", "/inputPorts/IN", "byte", "inputPorts.IN: the key 'byte' is not read: did you mean 'bytes'?"),
        (
            "x.app.json",
            "/stmSchedules/s",
            "passDependancies",
            "stmSchedules.s: the key 'passDependancies' is not read: did you mean",
        ),
    ] {
        let warnings = warnings_of(file, pointer, key);
        let expected = format!("{file}: {expected}");
        assert!(matches!(&warnings[..], [warning] if warning.starts_with(&expected)), "{warnings:?}\n{expected}");
    }
    for (pointer, key) in [("", "x"), ("", "name2"), ("/stmSchedules/s", "note"), ("", "stmExternalRunnables2")] {
        assert_eq!(warnings_of("x.app.json", pointer, key), [""; 0]);
    }
    // Such a key can also be the cause of another error.
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["stmSchedule"] = app.as_object_mut().unwrap().remove("stmSchedules").unwrap());
    let text = "x.app.json: states.RUN.stmScheduleKey: there is no schedule 's'; there are none; perhaps because of this: x.app.json: \
                the key 'stmSchedule' is not read: did you mean 'stmSchedules'?";
    assert_eq!(case.fault(), text);
    // Names are not keys, even if the value is not read.
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["stmExternalRunnables"] = json!({"period2": {"frame": 1}}));
    assert!(case.open().unwrap().warnings().is_empty());
    // Seen to fail without a bound.
    let mut case = Case::new();
    let text = String::from_utf8(case.0["x.app.json"].clone()).unwrap();
    case.set_text("x.app.json", text.replacen('{', &format!("{{{}", "\"frame\": 1, ".repeat(100_000)), 1));
    assert_eq!(case.open().unwrap().warnings().len(), 100);
}

#[test]
fn bytes_that_are_no_text_are_named() {
    // Seen to fail without the check for marks.
    for (bytes, expected) in [
        (&b"{\"name\":\n \"\xff\"}"[..], "x.app.json: the file is not UTF-8 text at line 2"),
        (b"\xef\xbb\xbf{}", "x.app.json: the file begins with a byte order mark: save it as UTF-8 without one"),
        (b"\xff\xfe{\0}\0", "x.app.json: the file is UTF-16: save it as UTF-8"),
    ] {
        let mut case = Case::new();
        case.set_text("x.app.json", bytes);
        assert_eq!(case.fault(), expected);
    }
    let mut case = Case::new();
    case.set_text("c.yaml", b"a: \xff\n");
    assert_eq!(case.fault(), "c.yaml: the file is not UTF-8 text at line 1");
    let mut case = Case::new();
    case.set_text("x.app.json", vec![b' '; (16 << 20) + 1]);
    assert_eq!(case.fault(), "x.app.json: the file is larger than 16 MiB");
}
