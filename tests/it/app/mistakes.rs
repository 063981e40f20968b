//! Mistakes in the connections and the schedules: each is an error with the file and the place.

use serde_json::json;

use super::{Case, before, epoch, only};

/// The place of the epoch of [`Case`].
const EPOCH: &str = "x.app.json: stmSchedules.s.hyperepochs.h.epochs.e";

fn assert_fault(case: &Case, expected: &str) {
    let fault = case.fault();
    assert!(fault.starts_with(expected), "\n{fault}\n{expected}");
}

#[test]
fn the_case_itself_is_right() {
    let app = Case::new().open().unwrap();
    assert!(app.warnings().is_empty(), "{:?}", app.warnings());
    assert_eq!(before(&app, only(&app), "top.b.SETUP"), [""; 0]);
    assert!(app.schedule(None).is_ok());
}

#[test]
fn an_edge_back_to_an_earlier_phase_names_both_ends_their_phases_and_indirect() {
    // Seen to fail with the phases compared the other way round.
    let mut case = Case::new();
    case.rows(json!([[], ["top.b"], ["top.a"]]));
    assert_fault(
        &case,
        "T.graphlet.json: connections[0].dests.b.IN: 'top.b' in phase 1 reads from 'top.a' in phase 2, which is later: put 'top.b' \
         in phase 2 or later, or mark the connection `indirect`, so that it reads an earlier item; the phases are those of \
         x.app.json: stmSchedules.s.hyperepochs.h.epochs.e.passes[1][0] and x.app.json: stmSchedules.s.hyperepochs.h.epochs.e.passes[2][0]",
    );
    case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"]["indirect"] = json!(true));
    assert!(case.open().is_ok());
}

#[test]
fn a_component_in_two_rows_or_epochs_names_both_places() {
    // Seen to fail without the check.
    let twice = |first: &str| {
        format!("the pass 'top.a.SETUP' is scheduled twice, here and at {first}: name each component in one row of one epoch")
    };
    let mut case = Case::new();
    case.rows(json!([[], ["top.a"], ["top.b", "top.a"]]));
    assert_fault(&case, &format!("{EPOCH}.passes[2][1]: {}", twice(&format!("{EPOCH}.passes[1][0]"))));
    case.rows(json!([["top"], ["top.a.SETUP"]]));
    assert_fault(&case, &format!("{EPOCH}.passes[1][0]: {}", twice(&format!("{EPOCH}.passes[0][0]"))));
    case.rows(json!([[], ["top.a", "top.b"]]));
    case.edit("x.app.json", |app| {
        app["stmSchedules"]["s"]["hyperepochs"]["h"]["epochs"]["f"] = json!({"passes": [["top.a"]]});
    });
    let second = EPOCH.replace("epochs.e", "epochs.f");
    assert_fault(&case, &format!("{second}.passes[0][0]: {}", twice(&format!("{EPOCH}.passes[1][0]"))));
}

#[test]
fn a_flat_list_shows_the_form() {
    // Seen to fail with serde's own message.
    let mut case = Case::new();
    case.rows(json!(["top.a", "top.b"]));
    assert_fault(
        &case,
        &format!(
            "{EPOCH}.passes[0]: the name 'top.a' stands where a row of names is wanted: `passes` is a list of rows, row 0 without a \
             phase and then a row for each phase, as in [[], [\"top.a\"], [\"top.b\"]] at line 1 column"
        ),
    );
    case.rows(json!("top.a"));
    assert_fault(&case, &format!("{EPOCH}.passes: invalid type: string \"top.a\", expected a list"));
}

#[test]
fn a_predecessor_that_is_not_scheduled_is_an_error() {
    // Seen to fail with the connection left out, as the original does.
    let mut case = Case::new();
    case.rows(json!([[], ["top.b"]]));
    let why = "is not: schedule that too, or mark the connection `indirect`";
    assert_fault(
        &case,
        &format!("{EPOCH}.passes[1][0]: 'top.b.SETUP' is scheduled, but 'top.a.TEARDOWN', on which it depends, {why}"),
    );
    case.rows(json!([[], ["top.a.SETUP"], ["top.b"]]));
    assert_fault(&case, &format!("{EPOCH}.passes[2][0]: 'top.b.SETUP' is scheduled, but 'top.a.TEARDOWN', on which it"));
    // A consumer that is not scheduled is no mistake.
    case.rows(json!([[], ["top.a"]]));
    assert!(case.open().is_ok());
}

#[test]
fn a_connection_across_epochs_is_refused_with_its_reason() {
    // Seen to fail with the dependency dropped, as the original does.
    let mut case = Case::new();
    case.rows(json!([[], ["top.a"]])).edit("x.app.json", |app| {
        app["stmSchedules"]["s"]["hyperepochs"]["h"]["epochs"]["f"] = json!({"passes": [["top.b"]]});
    });
    assert_fault(
        &case,
        "T.graphlet.json: connections[0].dests.b.IN: 'top.b' depends on 'top.a', which is in another epoch: epochs run at their own \
         periods, so no order holds between them; schedule both in one epoch, mark the connection `indirect`, or stamp it with \
         `data-offset`; they are at x.app.json: stmSchedules.s.hyperepochs.h.epochs.e.passes[1][0] and x.app.json: \
         stmSchedules.s.hyperepochs.h.epochs.f.passes[0][0]",
    );
    for (key, value) in [("indirect", json!(true)), ("data-offset", json!(1))] {
        let mut case = case.clone();
        case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"][key] = value);
        assert!(case.open().is_ok(), "{key}");
    }
}

#[test]
fn a_missing_cost_is_a_warning_with_the_default() {
    // Seen to fail with the warning left out.
    let mut case = Case::new();
    case.set_text("c.yaml", "p.top_a_pass_0: 1000\np.top_a_pass_1: 1000\np.top_b_pass_0: 1000\n");
    let app = case.open().unwrap();
    let warnings: Vec<String> = app.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [format!("{EPOCH}.passes[2][0]: 'p.top_b_pass_1' is not in c.yaml: it costs 1000 us")]);
    let last = only(&app).runnables.last().unwrap();
    assert!(last.is_default_cost && last.cost_ns == anabranch::app::WCET_DEFAULT_NS);
    let mut alone = case.clone();
    alone.edit("x.app.json", |app| app["processes"] = json!({}));
    let warnings: Vec<String> = alone.open().unwrap().warnings().iter().map(ToString::to_string).collect();
    assert!(
        warnings[0].ends_with("'top.a.SETUP' is in no process, so c.yaml has no key for it: it costs 1000 us"),
        "{warnings:?}"
    );
    case.edit("x.app.json", |app| _ = app["stmSchedules"]["s"].as_object_mut().unwrap().remove("wcet"));
    let app = case.open().unwrap();
    assert_eq!(app.warnings().len(), 1);
    assert!(app.warnings()[0].to_string().contains("names no file of costs as `wcet`: each runnable costs 1000 us"));
}

#[test]
fn unknown_names_are_named_with_those_that_there_are() {
    // Each message was seen with the place that it has here.
    let mut case = Case::new();
    case.rows(json!([[], ["top.c"]]));
    assert_fault(&case, &format!("{EPOCH}.passes[1][0]: there is no component or pass 'top.c'; 'top' has 'a', 'b'"));
    case.rows(json!([[], ["top.a.RUN"]]));
    assert_fault(
        &case,
        &format!("{EPOCH}.passes[1][0]: there is no component or pass 'top.a.RUN'; 'top.a' has 'SETUP', 'TEARDOWN'"),
    );
    for (src, dest, expected) in [
        ("c.OUT", "b.IN", "connections[0].src: there is no component 'c'; there are 'a', 'b'"),
        ("a.OUTPUT", "b.IN", "connections[0].src: 'top.a' has no output port 'OUTPUT'; it has 'OUT'"),
        ("a.OUT", "b.OUT", "connections[0].dests.b.OUT: 'top.b' has no input port 'OUT'; it has 'IN', 'MORE'"),
        ("a.OUT", "IN", "connections[0].dests.IN: the graphlet has no output port 'IN'; it has none"),
        ("a.OUT", "b.MORE", "connections[0].dests.b.MORE: 'b.MORE' is an array port: name one of it, as b.MORE[0]"),
        ("a.OUT", "b.MORE[2]", "connections[0].dests.b.MORE[2]: 'b.MORE[2]' is out of range: the array port has 2"),
        ("a.OUT", "b.IN[0]", "connections[0].dests.b.IN[0]: 'b.IN[0]': the port is no array"),
        ("a.OUT", "b.MORE[-1]", "connections[0].dests.b.MORE[-1]: '-1' is no position in an array port"),
    ] {
        let mut case = Case::new();
        case.edit("T.graphlet.json", |graphlet| graphlet["connections"] = json!([{"src": src, "dests": {dest: {}}}]));
        assert_fault(&case, &format!("T.graphlet.json: {expected}"));
    }
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["processes"]["p"]["subcomponents"] = json!(["topp"]));
    assert_fault(&case, "x.app.json: processes.p.subcomponents[0]: there is no component 'topp'; there are 'top'");
    let mut case = Case::new();
    case.edit("x.app.json", |app| app["states"]["RUN"]["stmScheduleKey"] = json!("t"));
    assert_fault(&case, "x.app.json: states.RUN.stmScheduleKey: there is no schedule 't'; there are 's'");
    let error = Case::new().open().unwrap().schedule(Some("WALK")).unwrap_err().to_string();
    assert_eq!(error, "x.app.json: states: there is no state 'WALK'; there are 'RUN'");
}

#[test]
fn a_cycle_of_direct_edges_names_its_nodes() {
    // Seen to fail with cycles of scheduled components found only.
    let mut case = Case::new();
    case.rows(json!([[], ["top"]]));
    case.edit("T.graphlet.json", |graphlet| {
        graphlet["connections"].as_array_mut().unwrap().push(json!({"src": "b.OUT", "dests": {"a.IN": {}}}));
    });
    assert_fault(
        &case,
        &format!(
            "{EPOCH}.passes: the passes top.a.SETUP -> top.a.TEARDOWN -> top.b.SETUP -> top.b.TEARDOWN -> top.a.SETUP wait for each other"
        ),
    );
    case.edit("x.app.json", |app| *app = json!({"name": "X", "subcomponents": app["subcomponents"].clone()}));
    let fault = case.fault();
    assert!(fault.starts_with("T.graphlet.json: connections["), "{fault}");
    assert!(fault.contains("the components top.a -> top.b -> top.a wait for each other in a cycle: mark one"), "{fault}");
}

#[test]
fn a_capacity_that_loses_messages_is_refused_with_what_would_be_lost() {
    // Seen to fail with the capacities for a consumer that runs first.
    let with = |params: serde_json::Value| {
        let mut case = Case::new();
        case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"] = params);
        case
    };
    let place = "T.graphlet.json: connections[0].dests.b.IN.fifo-size: `fifo-size` 1 is too small for the connection from 'top.a' to \
                 'top.b', which crosses 1 phase: it needs 2; ";
    let mailbox = with(json!({"fifo-size": 1, "mode": "mailbox"}));
    assert_fault(
        &mailbox,
        &format!(
            "{place}'top.b' would never get messages 2, 4, 6, ..., and nothing would say so; leave `fifo-size` out, and it is"
        ),
    );
    assert_fault(&with(json!({"fifo-size": 1})), &format!("{place}send number 3 of 'top.a' would find the queue full and fail"));
    assert!(with(json!({"fifo-size": 2})).open().is_ok());
    // If the consumer runs first, one slot is enough.
    for mut case in [with(json!({"fifo-size": 1})), mailbox] {
        case.edit("x.app.json", |app| app["stmSchedules"]["s"]["passDependencies"] = json!({"top.a.SETUP": ["top.b.TEARDOWN"]}));
        assert_eq!(only(&case.open().unwrap()).links[0].capacity, 1);
    }
}

#[test]
fn a_singleton_inverts_the_dependency_across_one_phase_and_crosses_no_more() {
    // Seen to fail with two phases allowed.
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"] = json!({"mode": "singleton"}));
    let app = case.open().unwrap();
    assert_eq!(before(&app, only(&app), "top.a.SETUP"), ["top.b.TEARDOWN"]);
    assert_eq!(before(&app, only(&app), "top.b.SETUP"), [""; 0]);
    case.rows(json!([[], ["top.a"], [], ["top.b"]]));
    assert_fault(
        &case,
        "T.graphlet.json: connections[0].dests.b.IN.mode: the singleton from 'top.a' to 'top.b' crosses 2 phases, and its one slot",
    );
    case.rows(json!([[], ["top"]]));
    let app = case.open().unwrap();
    assert_eq!(before(&app, only(&app), "top.b.SETUP"), ["top.a.TEARDOWN"]);
}

#[test]
fn a_component_of_which_only_a_later_pass_is_scheduled_keeps_its_order() {
    // Seen to fail with the order of the first pass only, which is not there.
    let mut case = Case::new();
    case.rows(json!([["top.a", "top.b.TEARDOWN"]]));
    let app = case.open().unwrap();
    assert_eq!(before(&app, only(&app), "top.b.TEARDOWN"), ["top.a.TEARDOWN"]);
    let edges = app.shape(only(&app)).edges().len();
    assert_eq!(edges, 2);
    // So across phases: the consumer reads by item.
    case.rows(json!([[], ["top.a"], ["top.b.TEARDOWN"]]));
    let app = case.open().unwrap();
    assert_eq!(app.shape(only(&app)).edges().len(), edges);
    assert!(only(&app).links[0].is_stamped);
    // And against the direction of a singleton.
    case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"] = json!({"mode": "singleton"}));
    case.rows(json!([[], ["top.a.TEARDOWN"], ["top.b.SETUP"]]));
    let app = case.open().unwrap();
    assert_eq!(before(&app, only(&app), "top.a.TEARDOWN"), ["top.b.SETUP"]);
}

#[test]
fn the_order_of_any_number_of_consumers_is_found() {
    // Seen to refuse all consumers after the first 1024.
    let mut case = Case::new();
    let names: Vec<String> = (0..1100).map(|number| format!("b{number}")).collect();
    case.edit("T.graphlet.json", |graphlet| {
        names.iter().for_each(|name| graphlet["subcomponents"][name] = json!({"componentType": "N.node.json"}));
        let dests: serde_json::Map<_, _> = names.iter().map(|name| (format!("{name}.IN"), json!({"fifo-size": 1}))).collect();
        graphlet["connections"] = json!([{"src": "a.OUT", "dests": dests}]);
    });
    let rows = names.iter().map(|name| format!("top.{name}")).collect::<Vec<_>>();
    case.rows(json!([[], ["top.a"], rows])).edit("x.app.json", |app| {
        let last: Vec<String> = names.iter().map(|name| format!("top.{name}.TEARDOWN")).collect();
        app["stmSchedules"]["s"]["passDependencies"] = json!({"top.a.SETUP": last});
    });
    let app = case.open().unwrap();
    assert!(only(&app).links.len() == 1100 && only(&app).links.iter().all(|link| link.capacity == 1));
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    // Seen to fail without the check of `reuse`.
    let with = |params: serde_json::Value| {
        let mut case = Case::new();
        case.edit("T.graphlet.json", |graphlet| graphlet["connections"][0]["dests"]["b.IN"] = params);
        case.fault()
    };
    let place = "T.graphlet.json: connections[0].dests.b.IN";
    assert_eq!(with(json!({"reuse": true})), format!("{place}.reuse: `reuse` needs \"mode\": \"mailbox\""));
    assert_eq!(
        with(json!({"mode": "singleton", "fifo-size": 2})),
        format!("{place}.fifo-size: a singleton has one slot: let its `fifo-size` be 1, not 2")
    );
    assert_eq!(with(json!({"fifo-size": 0})), format!("{place}.fifo-size: a capacity of 0: a capacity is from 1 to 1048576"));
    assert!(with(json!({"mode": "letter"})).starts_with(&format!("{place}.mode: unknown variant `letter`, expected one of")));
    let mut case = Case::new();
    case.edit("T.graphlet.json", |graphlet| {
        graphlet["connections"].as_array_mut().unwrap().push(json!({"src": "b.OUT", "dests": {"b.IN": {}}}));
    });
    assert_fault(
        &case,
        "T.graphlet.json: connections[1].dests.b.IN: the port 'b.IN' has a source already, at T.graphlet.json: connections[0].dests.b.IN",
    );
}

#[test]
fn a_single_pass_loses_its_implicit_dependency_and_declared_ones_hold() {
    // Seen to fail with the implicit dependency kept.
    let mut case = Case::new();
    case.rows(json!([["top.a.SETUP", "top.a.TEARDOWN", "top.b"]]));
    let app = case.open().unwrap();
    let inside = |app: &anabranch::app::App| {
        let epoch = only(app);
        let is_in =
            |pass: &str| epoch.dependencies.iter().any(|dependency| epoch.runnables[dependency.target.index()].name == *pass);
        [is_in("top.a.TEARDOWN"), is_in("top.b.TEARDOWN")]
    };
    assert_eq!(inside(&app), [false, true]);
    case.edit("x.app.json", |app| app["stmSchedules"]["s"]["passDependencies"] = json!({"top.a.TEARDOWN": ["top.a.SETUP"]}));
    assert_eq!(inside(&case.open().unwrap()), [true, true]);
    let start = "x.app.json: stmSchedules.s.passDependencies";
    for (dependencies, expected) in [
        (json!({"top.a": ["top.b.SETUP"]}), ".top.a: 'top.a' is a component: name one of its passes"),
        (json!({"top.a.SETUP": ["top.b.RUN"]}), ".top.a.SETUP[0]: there is no component or pass 'top.b.RUN'"),
        (json!({"top.a.SETUP": "top.b.SETUP"}), ".top.a.SETUP: invalid type: string \"top.b.SETUP\", expected a list"),
    ] {
        case.edit("x.app.json", |app| app["stmSchedules"]["s"]["passDependencies"] = dependencies);
        assert_fault(&case, &format!("{start}{expected}"));
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    // Seen to fail without the check of frames.
    for (key, value, expected) in [
        ("frames", json!(0), ".frames: 0 frames: an epoch has from 1 to 65536"),
        ("frames", json!(4_000_000_000_u32), ".frames: 4000000000 frames: an epoch has from 1 to 65536"),
        ("frames", json!(-1), ".frames: invalid value: integer `-1`, expected a whole number from 0 to 4294967295"),
        ("period", json!(0), ".period: a period of 0 ns: a period is from 1 to 10^15"),
        ("period", json!(u64::MAX), ".period: a period of 18446744073709551615 ns: a period is"),
        ("period", json!(1e30), ".period: invalid type: floating point `1e+30`, expected a whole number from 0 on"),
        ("aliasGroups", json!({"g": ["top.c"]}), ".aliasGroups.g[0]: there is no component or pass 'top.c'"),
        ("aliasGroups", json!({"g": ["top.a", "top.a"]}), ".aliasGroups.g[1]: 'top.a' is in two alias groups, or twice in one"),
    ] {
        let mut case = Case::new();
        case.edit("x.app.json", |app| epoch(app)[key] = value);
        assert_fault(&case, &format!("{EPOCH}{expected}"));
    }
    let mut case = Case::new();
    case.rows(json!(vec![Vec::<String>::new(); 2000]));
    assert_fault(&case, &format!("{EPOCH}.passes: an epoch has at most 1025 rows, and not 2000"));
}

#[test]
fn the_default_state_says_which_schedule_runs() {
    // Seen to fail with the first schedule for each state.
    let mut case = Case::new();
    case.edit("x.app.json", |app| {
        app["stmSchedules"]["t"] = json!({"wcet": "c.yaml", "hyperepochs": {}});
        app["states"]["WALK"] = json!({"stmScheduleKey": "t"});
    });
    let name = |case: &Case, state| case.open().unwrap().schedule(state).map(|schedule| schedule.name.to_string());
    assert_eq!(name(&case, None).unwrap(), "s");
    assert_eq!(name(&case, Some("WALK")).unwrap(), "t");
    case.edit("x.app.json", |app| app["states"]["RUN"]["default"] = json!(false));
    let none = "x.app.json: states: no state is the default: name one of 'RUN', 'WALK'";
    assert_eq!(name(&case, None).unwrap_err().to_string(), none);
    case.edit("x.app.json", |app| app["states"] = json!({}));
    let several = "x.app.json: states: the application has several `stmSchedules`, and no state chooses one";
    assert_eq!(name(&case, None).unwrap_err().to_string(), several);
    case.edit("x.app.json", |app| {
        let state = json!({"stmScheduleKey": "s", "default": true});
        app["states"] = json!({"RUN": state, "WALK": state});
    });
    assert_fault(&case, "x.app.json: states.WALK.default: 'RUN' is the default state already");
}

#[test]
fn a_component_is_in_the_process_that_names_it_most_closely() {
    // Seen to fail with the last process that names it or a graphlet around it.
    let mut case = Case::new();
    case.edit("x.app.json", |app| {
        app["processes"] = json!({"a": {"subcomponents": ["top.b"]}, "p": {"subcomponents": ["top"], "runOn": "m"}});
    });
    let app = case.open().unwrap();
    let processes: Vec<Option<&str>> = app.components().iter().map(|component| component.process.as_deref()).collect();
    assert_eq!(processes, [Some("p"), Some("a")]);
    case.edit("x.app.json", |app| app["processes"]["a"]["subcomponents"] = json!(["top"]));
    let first =
        "x.app.json: processes.p.subcomponents[0]: 'top' is in a process already, at x.app.json: processes.a.subcomponents[0]";
    assert_fault(&case, first);
}
