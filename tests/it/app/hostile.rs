//! Descriptions designed to take unbounded time or memory: each is refused, or read, in bounded time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use anabranch::app::App;

use super::{Case, epoch};
use crate::support::Dice;

/// Runs a test that must end soon. The bound is far above its usual time.
fn soon<R>(test: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = test();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    result
}

#[test]
fn a_graphlet_that_contains_itself_names_the_path() {
    // Seen to end only by the limit of nesting, without the check.
    let graphlet = |inner: &str| json!({"subcomponents": {"x": {"componentType": inner}}});
    let mut case = Case::new();
    case.set("T.graphlet.json", graphlet("sub/U.graphlet.json"));
    case.set("sub/U.graphlet.json", graphlet("../T.graphlet.json"));
    assert_eq!(
        soon(|| case.fault()),
        "sub/U.graphlet.json: subcomponents.x.componentType: a graphlet contains itself: T.graphlet.json -> sub/U.graphlet.json -> T.graphlet.json"
    );
    case.set("T.graphlet.json", graphlet("./T.graphlet.json"));
    assert!(case.fault().ends_with("a graphlet contains itself: T.graphlet.json -> T.graphlet.json"));
}

/// Graphlets `G0` to `G<depth>`, each with `width` of the next one.
fn nested(case: &mut Case, depth: usize, width: usize) {
    for number in 0..depth {
        let inner: serde_json::Map<String, Value> = (0..width)
            .map(|child| (format!("c{child}"), json!({"componentType": format!("G{}.graphlet.json", number + 1)})))
            .collect();
        case.set(&format!("G{number}.graphlet.json"), json!({ "subcomponents": inner }));
    }
    case.set(&format!("G{depth}.graphlet.json"), json!({"subcomponents": {"n": {"componentType": "N.node.json"}}}));
    case.set("x.app.json", json!({"name": "X", "subcomponents": {"g": {"componentType": "G0.graphlet.json"}}}));
}

#[test]
fn graphlets_nest_to_a_bound_and_do_not_multiply_beyond_one() {
    // Seen to fail with larger bounds.
    let mut case = Case::new();
    nested(&mut case, 62, 1);
    assert_eq!(soon(|| case.open()).unwrap().components().len(), 1);
    nested(&mut case, 80, 1);
    assert!(soon(|| case.fault()).ends_with("componentType: graphlets are nested more than 64 deep"));
    nested(&mut case, 40, 2);
    assert!(soon(|| case.fault()).ends_with("the application has more than 32768 components"));
}

#[test]
fn brackets_without_end_are_refused() {
    for open in ["[", "{\"a\":", "{\"name\": \"X\", \"logSpec\": ["] {
        for file in ["x.app.json", "T.graphlet.json", "N.node.json", "c.yaml"] {
            let mut case = Case::new();
            case.set_text(file, open.repeat(1_000_000));
            let fault = soon(|| case.fault());
            assert!(fault.starts_with(file) && fault.len() < 1000, "{fault}");
        }
    }
    // The value of a key that is not read is skipped without recursion.
    let deep = format!("{{\"name\": \"X\", \"argv\": {}1{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let mut case = Case::new();
    case.set_text("x.app.json", deep);
    assert!(soon(|| case.open()).is_ok());
}

#[test]
fn aliases_of_yaml_do_not_multiply() {
    // A list is refused before an alias in it is followed.
    let mut text = "a0: &a0 1\n".to_owned();
    for number in 1..60 {
        text += &format!("a{number}: &a{number} [*a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}]\n", number - 1);
    }
    let mut case = Case::new();
    case.set_text("c.yaml", text);
    let fault = soon(|| case.fault());
    assert!(fault.starts_with("c.yaml: ") && fault.len() < 1000, "{fault}");
}

#[test]
fn names_without_end_are_refused_and_not_repeated() {
    // Seen to fail with names that are repeated whole.
    let long = "n".repeat(1 << 20);
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| graphlet["subcomponents"][&long] = json!({"componentType": "N.node.json"}));
    let fault = case.fault();
    assert!(fault.contains("the limit is 256") && fault.len() < 1000, "{fault}");
    let mut case = Case::new();
    case.rows(json!([[long]]));
    let fault = case.fault();
    assert!(fault.contains("there is no component or pass 'nnn") && fault.len() < 1000, "{fault}");
}

#[test]
fn ports_that_feed_each_other_in_a_cycle_feed_nothing() {
    // Seen to run for ever if connections are followed from the ports of graphlets, too.
    let mut case = Case::new();
    case.set(
        "P.graphlet.json",
        json!({"inputPorts": {"IN": {}}, "outputPorts": {"OUT": {}}, "connections": [{"src": "IN", "dests": {"OUT": {}}}]}),
    );
    case.edit("T.graphlet.json", |graphlet| {
        graphlet["subcomponents"]["p"] = json!({"componentType": "P.graphlet.json"});
        graphlet["connections"] = json!([{"src": "p.OUT", "dests": {"p.IN": {}, "b.IN": {}}}]);
    });
    assert_eq!(soon(|| case.open()).unwrap().connections().len(), 0);
}

#[test]
fn connections_through_graphlets_keep_their_parameters() {
    // Seen to fail with the parameters of the last part only.
    let mut case = Case::new();
    case.set(
        "P.graphlet.json",
        json!({
            "inputPorts": {"IN": {"array": 2}},
            "outputPorts": {"OUT": {}},
            "subcomponents": {"n": {"componentType": "N.node.json"}},
            "connections": [
                {"src": "IN[1]", "dests": {"n.MORE[0]": {"fifo-size": 7}}},
                {"src": "n.OUT", "dests": {"OUT": {"indirect": true}}}
            ]
        }),
    );
    case.edit("T.graphlet.json", |graphlet| {
        graphlet["subcomponents"]["p"] = json!({"componentType": "P.graphlet.json"});
        graphlet["connections"] = json!([
            {"src": "a.OUT", "dests": {"p.IN[1]": {"fifo-size": 3, "mode": "mailbox"}}, "params": {"reuse": true}},
            {"src": "p.OUT", "dests": {"a.IN": {}}}
        ]);
    });
    case.rows(json!([["top"]]));
    let app = case.open().unwrap();
    let ends: Vec<(&str, &str)> = app
        .connections()
        .iter()
        .map(|connection| [connection.source, connection.target].map(|end| &*app.components()[end.component.index()].name).into())
        .collect();
    assert_eq!(ends, [("top.p.n", "top.a"), ("top.a", "top.p.n")]);
    let [feedback, data] = app.connections() else { panic!("two connections") };
    assert!(feedback.is_indirect && !data.is_indirect);
    assert_eq!((data.fifo_size, data.reuse, data.target.index), (Some(7), true, Some(0)));
}

/// An application of `count` components of the node `N`.
fn many(count: usize) -> Case {
    let mut case = Case::new();
    let nodes: serde_json::Map<String, Value> =
        (0..count).map(|number| (format!("n{number:03}"), json!({"componentType": "N.node.json"}))).collect();
    case.set("x.app.json", json!({"name": "X", "subcomponents": nodes}));
    case
}

#[test]
fn components_of_one_file_share_its_ports_and_all_ports_have_a_bound() {
    // Seen to fail with ports that are copied for each component, and without either bound.
    let ports = |count: usize| (0..count).map(|port| (format!("P{port}"), json!({}))).collect::<Value>();
    let mut case = many(200);
    case.edit("N.node.json", |node| node["inputPorts"] = ports(4096));
    let app = soon(|| case.open()).unwrap();
    let [first, .., last] = app.components() else { panic!("200 components") };
    assert!(std::ptr::eq(&*first.inputs, &*last.inputs));
    let mut more = many(300);
    more.edit("N.node.json", |node| node["inputPorts"] = ports(4096));
    assert_eq!(
        soon(|| more.fault()),
        "x.app.json: subcomponents.n255: the components of the application have more than 1048576 ports"
    );
    case.edit("N.node.json", |node| node["inputPorts"] = ports(4097));
    let fault = "inputPorts: a component has at most 4096 of these ports, and not 4097";
    assert_eq!(case.fault(), format!("N.node.json: {fault}"));
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| graphlet["inputPorts"] = ports(4097));
    assert_eq!(case.fault(), format!("T.graphlet.json: {fault}"));
}

#[test]
fn dependencies_of_passes_count_once_and_have_a_bound() {
    // Seen to fail with a dependency for each entry of the file, and without the bound.
    let mut case = many(2);
    case.edit("N.node.json", |node| node["passes"][1]["dependencies"] = json!(vec!["SETUP"; 300_000]));
    assert_eq!(soon(|| case.open()).unwrap().passes()[1].after.len(), 1);
    let names: Vec<String> = (0..600).map(|pass| format!("P{pass}")).collect();
    let passes = |node: &mut Value| {
        let pass = |number: usize| json!({"name": names[number], "processorTypes": ["CPU"], "dependencies": names[..number]});
        node["passes"] = (0..names.len()).map(pass).collect();
    };
    case.edit("N.node.json", passes);
    let fault = "the passes of the application have more than 262144 dependencies within their components";
    assert_eq!(soon(|| case.fault()), format!("x.app.json: subcomponents.n001: {fault}"));
    let mut one = many(1);
    one.edit("N.node.json", passes);
    assert!(soon(|| one.open()).is_ok());
}

#[test]
fn schedules_do_not_multiply_beyond_a_bound() {
    // Each was seen to be read without its bound.
    let mut case = Case::new();
    let epoch = || json!({"passes": [["top"]]});
    let hyperepoch = || json!({"period": 1, "epochs": {"e": epoch()}});
    let schedule = || json!({"wcet": "c.yaml", "hyperepochs": {"h": hyperepoch()}});
    let copies = |count: usize, form: Value| (0..count).map(|number| (format!("c{number}"), form.clone())).collect::<Value>();
    let many = [
        (json!({"stmSchedules": copies(257, schedule())}), "stmSchedules: 257 schedules, the limit is 256"),
        (
            json!({"stmSchedules": {"s": {"hyperepochs": copies(4097, json!({"period": 1, "epochs": {}}))}}}),
            "stmSchedules.s: 4097 hyperepochs and epochs in all schedules up to here, the limit is 4096",
        ),
        (
            json!({"stmSchedules": {"s": {"hyperepochs": {"h": {"period": 1, "epochs": copies(4096, epoch())}}}}}),
            "stmSchedules.s: 4097 hyperepochs and epochs in all schedules up to here, the limit is 4096",
        ),
        (
            json!({"stmSchedules": {"s": {"hyperepochs": {"h": {"period": 1, "resources": copies(4097, json!([])), "epochs": {}}}}}}),
            "stmSchedules.s: 4097 resources in all schedules up to here, the limit is 4096",
        ),
    ];
    for (part, expected) in many {
        case.edit("x.app.json", |app| app["stmSchedules"] = part["stmSchedules"].clone());
        assert_eq!(soon(|| case.fault()), format!("x.app.json: {expected}"));
    }
}

#[test]
fn passes_that_many_schedules_run_have_a_bound() {
    // Seen to be read without the bound.
    let mut case = many(8);
    let passes = |node: &mut Value| {
        let pass = |number: usize| json!({"name": format!("P{number}"), "processorTypes": ["CPU"]});
        node["passes"] = (0..4096).map(pass).collect();
    };
    case.edit("N.node.json", passes).edit("x.app.json", |app| {
        let names: Vec<String> = (0..8).map(|number| format!("n{number:03}")).collect();
        let schedule = json!({"hyperepochs": {"h": {"period": 1, "epochs": {"e": {"passes": [names]}}}}});
        app["stmSchedules"] = (0..100).map(|number| (format!("c{number:03}"), schedule.clone())).collect();
    });
    let fault = "all schedules up to here have more than 4194304 runnables and dependencies between them";
    assert_eq!(soon(|| case.fault()), format!("x.app.json: stmSchedules.c064: {fault}"));
}

#[test]
fn a_large_description_is_read_and_simulated_in_bounded_time() {
    // Seen to fail with a smaller bound on the passes.
    let count = 3_000;
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| {
        let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
        graphlet["subcomponents"] = names.iter().map(|name| (name.clone(), json!({"componentType": "N.node.json"}))).collect();
        let pairs = names.windows(2);
        graphlet["connections"] =
            pairs.map(|pair| json!({"src": format!("{}.OUT", pair[0]), "dests": {format!("{}.IN", pair[1]): {}}})).collect();
    });
    case.edit("x.app.json", |app| {
        epoch(app)["passes"] = json!([["top"]]);
        epoch(app)["frames"] = json!(20);
        app["stmSchedules"]["s"]["hyperepochs"]["h"]["resources"]["p.LOCK"] = json!(["top"]);
    });
    soon(|| {
        let app = case.open().unwrap();
        let log = app.schedules()[0].hyperepochs[0].simulate().unwrap();
        assert_eq!(log.spans.len(), 20 * 2 * count);
    });
    case.edit("x.app.json", |app| epoch(app)["frames"] = json!(65_536));
    let error = case.open().unwrap().schedules()[0].hyperepochs[0].simulate().unwrap_err().to_string();
    assert!(error.contains("the number of runnables in one period of hyperepoch 'h' is"), "{error}");
}

#[test]
fn broken_copies_of_the_samples_are_read_or_refused_and_never_panic() {
    // Seen to fail with a receiver of messages that is looked up without a check of the port's number.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/app");
    let files = [
        "systems/Piped.app.json",
        "systems/Chain_wcet.yaml",
        "graphlets/Chain.graphlet.json",
        "nodes/Source.node.json",
        "nodes/Sink.node.json",
    ];
    let pieces =
        ["\"\"", "[]", "{}", "null", "-1", "0", "1e9", "\"top\"", "\"top.source\"", "true", ",", ":", "{", "]", "\"IN\"", "GPU"];
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..3_000 {
        let mut dice = Dice::new(seed);
        let broken = files[dice.below(files.len())];
        let app = App::read_with("systems/Piped.app.json", |path| {
            let mut bytes = std::fs::read(root.join(path))?;
            if path.ends_with(broken.rsplit('/').next().unwrap()) {
                for _ in 0..1 + dice.below(2) {
                    let start = dice.below(bytes.len());
                    let end = (start + dice.below(12)).min(bytes.len());
                    let piece = pieces[dice.below(pieces.len())].bytes();
                    bytes.splice(start..end, piece);
                }
            }
            Ok(bytes)
        });
        let Ok(app) = app else {
            refused += 1;
            continue;
        };
        opened += 1;
        for hyperepoch in app.schedules().iter().flat_map(|schedule| &schedule.hyperepochs) {
            let _ = hyperepoch.simulate();
            for epoch in &hyperepoch.epochs {
                let _ = (app.written(epoch).map(|plan| plan.rows(&app, epoch)), app.shape(epoch));
            }
        }
    }
    assert!(opened > 50 && refused > 1000, "{opened} {refused}");
}
