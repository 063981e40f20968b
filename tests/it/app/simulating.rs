//! Hyperepochs in virtual time: frames, turns, mutexes, loads.

use anabranch::app::{App, HyperepochLog};
use serde_json::{Value, json};

use super::{Case, epoch, sample};

fn simulated(app: &App) -> HyperepochLog {
    app.schedules()[0].hyperepochs[0].simulate().unwrap()
}

fn resources(app: &mut Value) -> &mut Value {
    &mut app["stmSchedules"]["s"]["hyperepochs"]["h"]["resources"]
}

#[test]
fn the_samples_take_as_long_as_their_paths() {
    // Seen to fail with one lane for two CPUs.
    for (name, length) in [("Flat", 14_000.0), ("Piped", 8_000.0)] {
        let log = simulated(&sample(name));
        assert_eq!((log.spans.len(), log.length_us, log.critical_path_us), (14, length, length), "{name}");
        assert!(log.fits() && log.period_us == 33_000.0);
        let [cpu, gpu] = &log.engines[..] else { panic!("two engines") };
        assert_eq!((&*cpu.name, cpu.lanes, cpu.busy_us, cpu.bound_us), ("machine0.CPU", 2, 12_000.0, 6_000.0));
        assert_eq!((&*gpu.name, gpu.lanes, gpu.busy_us, gpu.bound_us), ("machine0.dGPU", 1, 2_000.0, 2_000.0));
        assert!((cpu.share - 6.0 / 33.0).abs() < 1e-12 && (gpu.share - 2.0 / 33.0).abs() < 1e-12);
    }
}

#[test]
fn no_two_runnables_share_a_lane_and_dependencies_hold() {
    // Seen to fail with lanes that are freed at the start.
    for name in ["Flat", "Piped"] {
        let app = sample(name);
        let (log, epoch) = (simulated(&app), super::only(&app));
        for (number, first) in log.spans.iter().enumerate() {
            for second in &log.spans[number + 1..] {
                let is_shared = (first.engine, first.lane) == (second.engine, second.lane);
                assert!(!is_shared || first.end_us <= second.start_us || second.end_us <= first.start_us);
            }
        }
        let of = |runnable| log.spans.iter().find(|span| span.runnable == runnable).unwrap();
        for dependency in &epoch.dependencies {
            assert!(of(dependency.source).end_us <= of(dependency.target).start_us);
        }
    }
}

#[test]
fn passes_that_are_given_to_one_of_several_lanes_are_named() {
    // Seen to fail with the number of the first pass, and "others" where there are none.
    let warning = |passes: Value| {
        let mut case = Case::new();
        case.edit("x.app.json", |app| resources(app)["m.CPU1"] = passes);
        let app = case.open().unwrap();
        let [warning] = app.warnings() else { panic!("{:?}", app.warnings()) };
        warning.to_string()
    };
    let place = "x.app.json: stmSchedules.s.hyperepochs.h.resources.m.CPU1";
    let lane = "given to this lane, but may run on any of m.CPU";
    assert_eq!(warning(json!(["top.b.TEARDOWN"])), format!("{place}: 'top.b.TEARDOWN' is {lane}"));
    assert_eq!(warning(json!(["top"])), format!("{place}: 'top.a.SETUP' and 3 more are {lane}"));
}

#[test]
fn frames_begin_at_their_times_and_after_the_frame_before() {
    // Seen to fail with frames that overlap.
    let starts = |period: u64| {
        let mut case = Case::new();
        case.edit("x.app.json", |app| {
            epoch(app)["frames"] = json!(3);
            epoch(app)["period"] = json!(period);
        });
        let log = simulated(&case.open().unwrap());
        (0..3).map(|frame| log.spans.iter().find(|span| span.frame == frame).unwrap().start_us).collect::<Vec<_>>()
    };
    assert_eq!(starts(100_000), [0.0, 100.0, 200.0]);
    // A frame takes 2 us.
    assert_eq!(starts(1_000), [0.0, 2.0, 4.0]);
}

#[test]
fn epochs_of_different_periods_share_the_engines() {
    // Seen to fail with lanes of each epoch's own.
    let mut case = Case::new();
    case.rows(json!([["top.a"]])).edit("x.app.json", |app| {
        epoch(app)["period"] = json!(500_000);
        epoch(app)["frames"] = json!(2);
        app["stmSchedules"]["s"]["hyperepochs"]["h"]["epochs"]["f"] = json!({"passes": [["top.b"]]});
        *resources(app) = json!({"m.CPU0": []});
    });
    case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"]["indirect"] = json!(true));
    let log = simulated(&case.open().unwrap());
    let mut of: Vec<(u32, u32, f64)> = log.spans.iter().map(|span| (span.epoch, span.frame, span.start_us)).collect();
    of.sort_by(|a, b| a.partial_cmp(b).unwrap());
    // Of two that are ready, the one with the longer path starts first.
    assert_eq!(of, [(0, 0, 0.0), (0, 0, 2.0), (0, 1, 500.0), (0, 1, 501.0), (1, 0, 1.0), (1, 0, 3.0)]);
    assert_eq!(log.engines[0].busy_us, 6.0);
}

#[test]
fn members_of_an_alias_group_take_turns() {
    // Seen to fail with the first member in each frame.
    let mut case = Case::new();
    case.edit("x.app.json", |app| {
        epoch(app)["frames"] = json!(3);
        epoch(app)["aliasGroups"] = json!({"turns": ["top.b", "top.a"]});
    });
    let app = case.open().unwrap();
    let log = simulated(&app);
    let name = |span: &anabranch::app::RunnableSpan| super::only(&app).runnables[span.runnable.index()].name.to_string();
    let ran: Vec<(u32, String)> = log.spans.iter().map(|span| (span.frame, name(span))).collect();
    let expected = [(0, "b"), (1, "a"), (2, "b")]
        .iter()
        .flat_map(|&(frame, node)| ["SETUP", "TEARDOWN"].map(|pass| (frame, format!("top.{node}.{pass}"))));
    assert_eq!(ran, expected.collect::<Vec<_>>());
    // The turns go on in the next period.
    let next = app.schedules()[0].hyperepochs[0].simulate_period(1).unwrap();
    assert_eq!(name(&next.spans[0]), "top.a.SETUP");
}

#[test]
fn passes_that_hold_a_mutex_exclude_each_other() {
    // Seen to fail with a mutex that the submitter releases.
    let mut case = Case::new();
    case.edit("N.node.json", |node| node["passes"][0]["processorTypes"] = json!(["GPU"]));
    let costs = ["a", "b"].map(|node| {
        let key = format!("p.top_{node}_pass");
        format!("{key}_0: 1000\n{key}_0_submittee: 5000\n{key}_1: 1000\n")
    });
    case.set_text("c.yaml", costs.concat());
    let starts = |case: &Case| {
        let app = case.open().unwrap();
        let log = simulated(&app);
        ["top.a.SETUP", "top.b.SETUP", "top.b.SETUP_submittee"].map(|name| {
            let is_it = |span: &&anabranch::app::RunnableSpan| super::only(&app).runnables[span.runnable.index()].name == *name;
            log.spans.iter().find(is_it).unwrap().start_us
        })
    };
    assert_eq!(starts(&case), [0.0, 0.0, 6.0]);
    case.edit("x.app.json", |app| resources(app)["p.LOCK"] = json!(["top.a.SETUP", "top.b.SETUP"]));
    assert_eq!(starts(&case), [0.0, 6.0, 7.0]);
}

#[test]
fn several_mutexes_do_not_block_each_other_for_ever() {
    // Seen to stop early with mutexes that each pass takes in an order of its own.
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| graphlet["subcomponents"]["c"] = json!({"componentType": "N.node.json"}));
    case.rows(json!([[], ["top.a", "top.c"], ["top.b"]])).edit("x.app.json", |app| {
        resources(app)["p.FIRST"] = json!(["top.b.SETUP", "top.c.TEARDOWN"]);
        resources(app)["p.SECOND"] = json!(["top.a.SETUP", "top.b.SETUP", "top.c.TEARDOWN"]);
    });
    let costs = [("a", 1000, 1000), ("b", 1000, 1000), ("c", 500, 9000)];
    let costs = costs.map(|(node, first, second)| format!("p.top_{node}_pass_0: {first}\np.top_{node}_pass_1: {second}\n"));
    case.set_text("c.yaml", costs.concat());
    assert_eq!(simulated(&case.open().unwrap()).spans.len(), 6);
}

#[test]
fn a_missing_engine_is_assumed_with_a_warning() {
    // Seen to fail without the warning.
    let mut case = Case::new();
    case.edit("x.app.json", |app| *resources(app) = json!({"m.dGPU": []}));
    let app = case.open().unwrap();
    let warnings: Vec<String> = app.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].ends_with("the hyperepoch has no resource for CPU of 'm': one with a single lane is assumed"),
        "{warnings:?}"
    );
    case.edit("x.app.json", |app| *resources(app) = json!({"CPU0": []}));
    assert!(case.fault().contains("resources.CPU0: 'CPU0' is no resource: write `machine.NAME`"));
}

#[test]
fn streams_and_lists_choose_the_engine_of_a_pass() {
    // Seen to fail with the first engine for each pass.
    let mut case = Case::new();
    case.edit("N.node.json", |node| node["passes"][0]["processorTypes"] = json!(["GPU"]));
    case.edit("x.app.json", |app| {
        *resources(app) =
            json!({"m.CPU0": [], "m.DLA0": [], "m.DLA1": [], "m.dGPU": [], "m.iGPU": [], "p.CUDA_STREAM0:iGPU": []});
    });
    let engines_of = |case: &Case| {
        let app = case.open().unwrap();
        let hyperepoch = &app.schedules()[0].hyperepochs[0];
        let lanes: Vec<(String, u32)> = hyperepoch.engines.iter().map(|engine| (engine.name.to_string(), engine.lanes)).collect();
        assert_eq!(lanes, [("m.CPU", 1), ("m.DLA", 2), ("m.dGPU", 1), ("m.iGPU", 1)].map(|(name, lanes)| (name.into(), lanes)));
        let submittees = super::only(&app).runnables.iter().filter(|runnable| runnable.role == anabranch::app::Role::Submittee);
        submittees.map(|runnable| hyperepoch.engines[runnable.engine.index()].name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(engines_of(&case), ["m.iGPU", "m.iGPU"]);
    case.edit("x.app.json", |app| resources(app)["m.dGPU"] = json!(["top.a.SETUP"]));
    assert_eq!(engines_of(&case), ["m.dGPU", "m.iGPU"]);
}
