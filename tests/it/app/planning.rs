//! Epochs as problems for the room `phases`, and as graphs of one item.

use anabranch::app::EpochPlan;
use anabranch::graph::{Backend, Bodies};
use anabranch::phases::Bound;
use anabranch::{Executor, Graph, Name, Value};
use serde_json::json;

use super::{Case, only, sample};

/// The period, the latency and the loads of a plan, in microseconds.
fn figures(plan: &EpochPlan) -> (f64, f64, Vec<f64>) {
    let loads = plan.phasing.loads().map(|load| load.busy_us).collect();
    (plan.phasing.period_us(), plan.phasing.latency_us(), loads)
}

#[test]
fn the_samples_are_planned_as_written() {
    // Seen to fail with a submittee on a CPU, and with phases from 0.
    let [flat, piped] = ["Flat", "Piped"].map(sample);
    let plan = flat.written(only(&flat)).unwrap();
    assert_eq!(figures(&plan), (14_000.0, 14_000.0, vec![12_000.0, 2_000.0]));
    assert_eq!(plan.phasing.bound(), Bound::CriticalPath(0));
    assert_eq!(plan.rows(&flat, only(&flat)), [["top.filter", "top.sink", "top.source", "top.track"]]);
    let plan = piped.written(only(&piped)).unwrap();
    let (period, latency, loads) = figures(&plan);
    assert_eq!((period, loads), (8_000.0, vec![12_000.0, 2_000.0]));
    assert!((14_000.0..=16_000.0).contains(&latency), "{latency}");
    assert_eq!((plan.phasing.depth(), plan.warnings.len()), (2, 0));
    assert_eq!(plan.messages_in_flight(), 6);
}

#[test]
fn a_proposal_is_never_worse_and_says_what_to_write() {
    // Seen to fail with the passes of a component in several phases.
    let app = sample("Flat");
    let epoch = only(&app);
    let (before, after) = (app.written(epoch).unwrap(), app.auto(epoch, 2).unwrap());
    assert!(after.phasing.period_us() < before.phasing.period_us());
    let rows: Vec<Vec<String>> =
        after.rows(&app, epoch).iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(rows.len(), 3);
    let mut all: Vec<&str> = rows.iter().flatten().map(String::as_str).collect();
    all.sort();
    assert_eq!(all, ["top.filter", "top.sink", "top.source", "top.track"]);
    // As a written schedule, the proposal has the same period.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/app");
    let again = anabranch::app::App::read_with("systems/Flat.app.json", |path| {
        let bytes = std::fs::read(root.join(path))?;
        let Ok(mut form) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return Ok(bytes) };
        if let Some(schedules) = form.get_mut("stmSchedules") {
            schedules["standardSchedule"]["hyperepochs"]["main"]["epochs"]["camera"]["passes"] = json!(rows);
        }
        Ok(form.to_string().into_bytes())
    })
    .unwrap();
    assert_eq!(again.written(only(&again)).unwrap().phasing.period_us(), after.phasing.period_us());
    assert!(!after.too_small(&app).is_empty());
}

#[test]
fn a_split_component_is_named_by_its_passes() {
    // Seen to fail with the name of the component in both rows.
    let mut case = Case::new();
    case.rows(json!([[], ["top.a.SETUP"], ["top.a.TEARDOWN", "top.b"]]));
    let app = case.open().unwrap();
    let rows = app.written(only(&app)).unwrap().rows(&app, only(&app));
    assert_eq!(rows, [vec![], vec!["top.a.SETUP"], vec!["top.a.TEARDOWN", "top.b"]]);
}

#[test]
fn sizes_of_messages_count_as_bytes_in_flight() {
    // Seen to fail without the bytes of connections from phase to phase.
    let mut case = Case::new();
    let bytes = |case: &Case| {
        let app = case.open().unwrap();
        app.written(only(&app)).unwrap().phasing.bytes_in_flight()
    };
    assert_eq!(bytes(&case), 0);
    case.edit("N.node.json", |node| node["outputPorts"]["OUT"]["bytes"] = json!(1000));
    assert!(bytes(&case) >= 2000, "{}", bytes(&case));
}

#[test]
fn any_number_of_connections_is_feedback_if_it_closes_a_cycle() {
    // Seen to fail with the first 1024 as feedback only.
    let count = 1100;
    let mut case = Case::new();
    case.edit("N.node.json", |node| {
        node["outputPorts"]["OUT"]["bytes"] = json!(1000);
        node["passes"] = json!([{"name": "RUN", "processorTypes": ["CPU"]}]);
    });
    case.edit("T.graphlet.json", |graphlet| {
        for number in 0..count {
            let [from, to] = ["a", "b"].map(|name| format!("{name}{number}"));
            for name in [&from, &to] {
                graphlet["subcomponents"][name] = json!({"componentType": "N.node.json"});
            }
            let all = graphlet["connections"].as_array_mut().unwrap();
            all.push(json!({"src": format!("{from}.OUT"), "dests": {format!("{to}.IN"): {}}}));
            all.push(json!({"src": format!("{to}.OUT"), "dests": {format!("{from}.IN"): {"indirect": true}}}));
        }
    });
    let bytes = |case: &mut Case| {
        let app = case.rows(json!([["top"]])).open().unwrap();
        app.auto(only(&app), 1).unwrap().phasing.bytes_in_flight()
    };
    // The case itself has a direct connection.
    assert_eq!(bytes(&mut case), (2 * count + 1) * 1000);
}

#[test]
fn a_shape_has_the_phases_of_the_rows() {
    // Seen to fail with shapes without phases.
    let mut case = Case::new();
    let phases = |case: &Case| {
        let app = case.open().unwrap();
        let shape = app.shape(only(&app));
        shape.nodes().iter().map(|node| node.phase).collect::<Vec<_>>()
    };
    assert_eq!(phases(&case), [Some(1), Some(1), Some(2), Some(2)]);
    case.rows(json!([["top.a"], ["top.b"]]));
    assert_eq!(phases(&case), [None, None, Some(1), Some(1)]);
}

#[test]
fn what_a_plan_of_phases_cannot_keep_is_a_warning() {
    // Each was seen to fail with its warning left out.
    let warnings = |case: &Case| {
        let app = case.open().unwrap();
        let plan = app.written(only(&app)).unwrap();
        plan.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let mut case = Case::new();
    assert_eq!(warnings(&case), "");
    case.edit("x.app.json", |app| {
        app["stmSchedules"]["s"]["hyperepochs"]["h"]["resources"]["p.LOCK"] = json!(["top.a.SETUP", "top.b"])
    });
    assert!(
        warnings(&case).contains("'top.a.SETUP' and 'top.b.SETUP' hold one mutex, and the plan of phases may let them overlap")
    );
    let mut case = Case::new();
    case.edit("x.app.json", |app| super::epoch(app)["aliasGroups"] = json!({"turns": ["top.a", "top.b"]}));
    assert!(warnings(&case).contains("alias group 'turns' take turns"));
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["stmSchedules"]["s"]["passDependencies"] = json!({"top.a.SETUP": ["top.b.TEARDOWN"]}));
    assert!(warnings(&case).contains("'top.a.SETUP' comes after 'top.b.TEARDOWN' of another phase"));
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"]["mode"] = json!("singleton"));
    assert!(warnings(&case).contains("which reads the only slot between them"));
    let mut case = Case::new();
    case.edit("x.app.json", |app| super::epoch(app)["period"] = json!(1999));
    assert!(warnings(&case).contains("the phases need a period of 2 us, and the epoch has 1.999 us"));
    let mut case = Case::new();
    case.rows(json!([["top.a"], [], ["top.b"]]));
    assert!(!warnings(&case).is_empty());
}

#[test]
fn bodies_bind_by_the_names_of_the_passes() {
    // Seen to fail with the passes of a component that do not read each other.
    let app = Case::new().open().unwrap();
    let shape = app.shape(only(&app));
    let names: Vec<&str> = shape.nodes().iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["top.a.SETUP", "top.a.TEARDOWN", "top.b.SETUP", "top.b.TEARDOWN"]);
    assert!(shape.nodes().iter().all(|node| node.cost_us == 1.0 && node.backend == Backend::Cpu));
    let next = |g: &mut Graph, name: &Name, x: Value<u64>| g.task(name, &x, |x: &u64| 10 * x);
    let bodies = Bodies::new()
        .node("top.a.SETUP", |g: &mut Graph, name: &Name, ()| g.task(name, (), || 7_u64))
        .node("top.a.TEARDOWN", next)
        .node("top.b.SETUP", next)
        .node("top.b.TEARDOWN", next);
    let plan = Graph::from_shape(&shape, &bodies).unwrap().compile().unwrap();
    let mut outputs = futures::executor::block_on(Executor::inline().run(&plan, anabranch::inputs! {})).unwrap();
    assert_eq!(*outputs.take::<u64>("top.b.TEARDOWN").unwrap(), 7000);
    // A pass on a device is one node, with the cost of its submittee.
    let app = sample("Flat");
    let shape = app.shape(only(&app));
    assert_eq!(shape.nodes().len(), 12);
    assert_eq!(shape.nodes()[1].backend, Backend::Gpu);
    assert!(shape.schedule().is_ok());
}
