//! The two sample systems: their parts, and their known dependencies.

use anabranch::app::{App, Delivery, Epoch, Processor, Role};

use super::{before, only, sample};

/// The dependencies of the first passes, in the order of the table: source, filter, track, sink.
fn table(app: &App) -> [Vec<&str>; 4] {
    ["source", "filter", "track", "sink"].map(|node| before(app, only(app), &format!("top.{node}.SETUP")))
}

#[test]
fn the_known_dependencies_of_the_flat_system_hold() {
    // Seen to fail with dependencies for indirect connections.
    let expected: [&[&str]; 4] =
        [&[], &["top.source.TEARDOWN"], &["top.filter.TEARDOWN"], &["top.source.TEARDOWN", "top.track.TEARDOWN"]];
    let app = sample("Flat");
    let mut found = table(&app);
    found.iter_mut().for_each(|passes| passes.sort());
    assert_eq!(found, expected.map(<[_]>::to_vec));
}

#[test]
fn the_known_dependencies_of_the_piped_system_hold() {
    // Seen to fail with dependencies from phase to phase.
    let expected: [&[&str]; 4] = [&[], &["top.source.TEARDOWN"], &[], &["top.track.TEARDOWN"]];
    let app = sample("Piped");
    assert_eq!(table(&app), expected.map(<[_]>::to_vec));
    assert!(app.warnings().is_empty(), "{:?}", app.warnings());
}

#[test]
fn the_parts_of_the_sample_are_there() {
    let app = sample("Piped");
    assert_eq!(app.name(), "ChainApp");
    let names: Vec<&str> = app.components().iter().map(|component| &*component.name).collect();
    assert_eq!(names, ["top.filter", "top.sink", "top.source", "top.track"]);
    assert_eq!(app.passes().len(), 12);
    assert_eq!(app.passes()[1].processor, Processor::Gpu);
    assert_eq!((app.connections().len(), app.states().len()), (5, 1));
    let filter = &app.components()[0];
    assert_eq!((filter.process.as_deref(), filter.machine.as_deref()), (Some("worker"), Some("machine0")));
    let hyperepoch = &app.schedule(Some("STANDARD")).unwrap().hyperepochs[0];
    let engines: Vec<(&str, u32)> = hyperepoch.engines.iter().map(|engine| (&*engine.name, engine.lanes)).collect();
    assert_eq!(engines, [("machine0.CPU", 2), ("machine0.dGPU", 1)]);
    assert_eq!((&*hyperepoch.mutexes[0].name, &*hyperepoch.streams[0].engine), ("worker.CUDA_MUTEX_LOCK", "dGPU"));
}

#[test]
fn a_pass_on_a_device_is_a_submitter_and_a_submittee() {
    // Seen to fail with dependants that come after the submitter.
    let app = sample("Flat");
    let epoch = only(&app);
    assert_eq!(epoch.runnables.len(), 14);
    let named = |name: &str| epoch.runnables.iter().position(|runnable| runnable.name == *name).unwrap();
    let [submitter, submittee, after] =
        ["PROCESS", "PROCESS_submittee", "TEARDOWN"].map(|pass| named(&format!("top.source.{pass}")));
    assert_eq!((epoch.runnables[submitter].role, epoch.runnables[submittee].role), (Role::Submitter, Role::Submittee));
    let edges: Vec<(usize, usize)> =
        epoch.dependencies.iter().map(|dependency| (dependency.source.index(), dependency.target.index())).collect();
    assert!(
        edges.contains(&(submitter, submittee)) && edges.contains(&(submittee, after)) && !edges.contains(&(submitter, after))
    );
    assert!(epoch.runnables.iter().all(|runnable| runnable.cost_ns == 1e6 && !runnable.is_default_cost));
}

fn delivery(app: &App, epoch: &Epoch, target: &str, port: &str) -> (Delivery, Option<i32>, bool, u32) {
    let target = app.component(target).unwrap();
    let is_port = |number: u32| {
        let end = app.connections()[number as usize].target;
        end.component == target && app.components()[target.index()].inputs[end.port as usize].name == *port
    };
    let link = epoch.links.iter().find(|link| is_port(link.connection)).unwrap();
    (link.delivery, link.offset, link.is_stamped, link.capacity)
}

#[test]
fn all_readers_of_a_port_that_crosses_phases_read_by_item() {
    // Seen to fail with the mark on the crossing connection only.
    let app = sample("Piped");
    let epoch = only(&app);
    assert_eq!(delivery(&app, epoch, "top.filter", "IN"), (Delivery::Within, Some(0), true, 1));
    assert_eq!(delivery(&app, epoch, "top.sink", "RAW"), (Delivery::ByItem, Some(1), true, 2));
    assert_eq!(delivery(&app, epoch, "top.track", "IN"), (Delivery::ByItem, Some(1), true, 2));
    assert_eq!(delivery(&app, epoch, "top.sink", "IN"), (Delivery::Within, Some(0), false, 1));
    assert_eq!(delivery(&app, epoch, "top.track", "FEEDBACK"), (Delivery::Feedback, Some(0), false, 1));
}
