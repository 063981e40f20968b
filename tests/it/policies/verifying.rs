//! `verify` and `verify_programs`: they find no fault in compiled schedules, and every fault in programs that
//! were broken on purpose.

use anabranch::graph::{Backend, Shape};
use anabranch::plan::{Point, Schedule, Step, StreamKind};
use anabranch::policy::PerOperator;

use super::shapes::{for_many_shapes, random_shape};
use super::{cases, policies};

type Programs = Vec<(StreamKind, Vec<Step>)>;

fn programs(schedule: &Schedule) -> Programs {
    (0..schedule.streams()).map(|stream| (schedule.kind(stream), schedule.steps(stream).to_vec())).collect()
}

/// All places of programs that hold a step of a kind.
fn places(programs: &Programs, is_wanted: fn(&Step) -> bool) -> Vec<(usize, usize)> {
    let steps = programs.iter().enumerate().flat_map(|(stream, program)| (0..program.1.len()).map(move |step| (stream, step)));
    steps.filter(|&(stream, step)| is_wanted(&programs[stream].1[step])).collect()
}

fn fault(shape: &Shape, programs: &Programs) -> String {
    let error = shape.verify_programs(programs).expect_err("a fault");
    assert!(error.is_invalid_plan() && error.node().is_some(), "{error}");
    error.to_string()
}

#[test]
fn what_the_library_compiles_is_verified() {
    // Seen to fail with a search that accepts any node of the wanted node's stream, and with one that stops
    // three places early.
    for_many_shapes(|_, schedule, context| schedule.verify().unwrap_or_else(|error| panic!("{error}, {context}")));
}

#[test]
fn large_schedules_are_verified() {
    for (seed, policy) in (0..40).zip(policies().into_iter().cycle()) {
        let shape = random_shape(seed, 12_000);
        shape.schedule_with(policy).expect("a schedule").verify().unwrap_or_else(|error| panic!("{error}, seed {seed}"));
    }
}

#[test]
fn a_wait_that_is_taken_out_is_missed() {
    // Seen to fail with a wait for any point of a stream taken for a wait for all of them.
    let mut taken = 0;
    for seed in 0..300 {
        let shape = random_shape(seed, 40);
        for policy in policies() {
            let whole = programs(&shape.schedule_with(policy).expect("a schedule"));
            for (stream, step) in places(&whole, |step| matches!(step, Step::Wait(_))) {
                let mut programs = whole.clone();
                programs[stream].1.remove(step);
                let text = fault(&shape, &programs);
                assert!(text.starts_with("nothing orders node 'n"), "{text}, seed {seed}");
                taken += 1;
            }
        }
    }
    assert!(taken > 1_000, "{taken} waits");
}

#[test]
fn a_wait_that_is_implied_is_redundant() {
    // Seen to fail without the check.
    let mut shape = Shape::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| shape.node(name, Backend::Gpu));
    [(a, b), (a, c), (b, d), (c, d)].into_iter().for_each(|(source, target)| shape.read(source, 0, target));
    let mut programs = programs(&shape.schedule_with(&PerOperator).expect("a schedule"));
    let run = programs[1].1.iter().position(|step| *step == Step::Run(c)).expect("c is on stream 1");
    let again = programs[0].1.iter().position(|step| *step == Step::Run(d)).expect("d is on stream 0");
    let (first, second) = (programs[1].1[run + 1], programs[0].1[again - 1]);
    assert!(matches!((first, second), (Step::Record(_), Step::Wait(_))));
    programs[0].1.insert(again, second);
    assert!(fault(&shape, &programs).starts_with("the wait for 'c' before node 'd' can be left out"));
}

#[test]
fn broken_programs_are_named() {
    // Each was seen to pass without its check.
    let case = cases().pop().expect("the worked example comes last");
    let whole = programs(&case.shape.schedule_with(&PerOperator).expect("a schedule"));
    let broken = |change: fn(&mut Programs)| {
        let mut programs = whole.clone();
        change(&mut programs);
        fault(&case.shape, &programs)
    };
    assert_eq!(broken(|programs| _ = programs.pop()), "node 'F' waits for point 3@1, which no program records");
    assert_eq!(
        broken(|programs| programs.iter_mut().for_each(|program| program.1.retain(|step| !matches!(step, Step::Record(_))))),
        "node 'D' waits for point 2@1, which no program records"
    );
    assert_eq!(broken(|programs| programs[1].1.clear()), "node 'I' waits for point 1@1, which no program records");
    assert!(broken(|programs| programs[1].1.insert(0, Step::Wait(Point::new(2, 1)))).contains("can be left out"));
    assert!(broken(|programs| programs[2].1.insert(0, Step::Wait(Point::new(2, 1)))).contains("in a cycle"));
    let run = |programs: &Programs| programs[1].1.iter().position(|step| matches!(step, Step::Run(_))).expect("it runs H");
    let mut programs = whole.clone();
    let step = programs[1].1[run(&programs)];
    programs[1].1.push(step);
    assert_eq!(fault(&case.shape, &programs), "node 'H' is run 2 times: run it once");
    let mut programs = whole.clone();
    programs[1].1.clear();
    programs[0].1.retain(|step| *step != Step::Wait(Point::new(1, 1)));
    assert_eq!(fault(&case.shape, &programs), "node 'H' is run 0 times: run it once");
    let mut programs = whole.clone();
    let release = programs[0].1.iter().position(|step| matches!(step, Step::Release(_))).expect("values are released");
    let step = programs[0].1.remove(release);
    let reader = programs[0].1[..release].iter().rposition(|step| matches!(step, Step::Run(_))).expect("a reader before it");
    programs[0].1.insert(reader, step);
    assert!(fault(&case.shape, &programs).contains("which its stream has released before"));
}

/// Three nodes on two streams: a and b, and c, which reads b.
fn three(first: impl IntoIterator<Item = Step>, second: impl IntoIterator<Item = Step>) -> (Shape, Programs) {
    let mut shape = Shape::new();
    let ids = ["a", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
    shape.read(ids[1], 0, ids[2]);
    (shape, vec![(StreamKind::Device(0), first.into_iter().collect()), (StreamKind::Device(0), second.into_iter().collect())])
}

#[test]
fn points_that_mean_two_things_are_refused() {
    // Each was seen to pass, with a race or a stream that hangs.
    let (shape, _) = three([], []);
    let [a, b, c] = [0, 1, 2].map(|node| Step::Run(shape.ids().nth(node).expect("a node")));
    let (record, wait) = (|stream, seq| Step::Record(Point::new(stream, seq)), |stream, seq| Step::Wait(Point::new(stream, seq)));
    let fault = |(shape, programs): (Shape, Programs)| fault_of(&shape, &programs);
    let twice = three([a, record(0, 1), b, record(0, 1)], [wait(0, 1), c]);
    assert_eq!(fault(twice), "the program of stream 0 records point 0@1 where its next one is 0@2");
    let foreign = three([a, b, record(5, 1)], [wait(5, 1), c]);
    assert_eq!(fault(foreign), "the program of stream 0 records point 5@1 where its next one is 0@1");
    let early = three([record(0, 1), a, b], [wait(0, 1), c]);
    assert_eq!(fault(early), "the program of stream 0 records point 0@1 where no node has just run: record points behind nodes");
    let behind = three([a, b, record(0, 1)], [wait(0, 1), c, wait(0, 7)]);
    assert_eq!(fault(behind), "the program of stream 1 ends with a wait for point 0@7, and runs nothing behind it");
    let (shape, programs) = three([a, b, record(0, 1)], [wait(0, 0), wait(0, 1), c]);
    shape.verify_programs(&programs).expect("point 0 is always reached");
}

fn fault_of(shape: &Shape, programs: &Programs) -> String {
    let error = shape.verify_programs(programs).expect_err("a fault");
    assert!(error.is_invalid_plan(), "{error}");
    error.to_string()
}

#[test]
fn plans_over_many_devices_have_no_wait_too_many() {
    // More parts than the nodes that searches are exact for. Seen to fail with searches that are bounded by
    // parts.
    let (count, devices) = (2_000, [0, 1, 2]);
    let mut shape = Shape::new();
    let mut word = 1u32;
    let mut draw = |bound: usize| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 8) as usize % bound
    };
    for node in 0..count {
        let id = shape.node(format!("n{node}"), Backend::Gpu);
        shape.nodes_mut()[node].devices = Some(devices.into());
        for _ in 0..if node > 0 { draw(4) } else { 0 } {
            let source = shape.ids().nth(node - 1 - draw(node.min(50))).expect("a node before");
            shape.read(source, 0, id);
        }
    }
    shape.schedule().expect("a schedule").verify().expect("no wait too many");
}

#[test]
fn edges_between_devices_have_a_limit() {
    let mut shape = Shape::new();
    let halves: [Vec<u32>; 2] = [(0..512).collect(), (512..1_024).collect()];
    let ids: Vec<_> = (0..100).map(|node| shape.node(format!("n{node}"), Backend::Gpu)).collect();
    for (node, half) in shape.nodes_mut().iter_mut().zip(halves.iter().cycle()) {
        node.devices = Some(half[..].into());
    }
    ids.windows(2).for_each(|pair| shape.read(pair[0], 0, pair[1]));
    let error = shape.schedule().expect_err("too many").to_string();
    assert!(error.starts_with("the number of edges between the streams of nodes that span several devices is"), "{error}");
}
