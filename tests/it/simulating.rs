//! The simulated device: times, slots, orders, races, faults.

use anabranch::Ranked;
use anabranch::graph::{Backend, Edge, EdgeKind, NodeId, Shape};
use anabranch::plan::{Point, Schedule, Span, Step, StreamKind};
use anabranch::policy::{PerOperator, Policy, Single};
use anabranch::sim::{Ending, Faults, Order, SimEvent, Simulation, Slots};

use crate::policies::policies;
use crate::policies::shapes::{fan, random_shape};

/// As many slots as all nodes could take at once.
fn all() -> Slots {
    Slots::default().compute(u32::MAX).copy_up(u32::MAX).copy_down(u32::MAX).cores(u32::MAX)
}

fn schedule(shape: &Shape, policy: &dyn Policy) -> Schedule {
    shape.schedule_with(policy).expect("a schedule")
}

fn makespan(simulation: &Simulation) -> f64 {
    simulation.run().expect("a log").makespan_us()
}

#[test]
fn a_fan_of_eight_on_four_streams_takes_two_node_times() {
    // Seen to fail with `Ranked` balancing by summed cost.
    let mut shape = fan(8);
    shape.nodes_mut()[0].cost_us = 10.0;
    let simulation = Simulation::new(&schedule(&shape, &Ranked::default().max_streams(4)));
    assert_eq!(makespan(&simulation), 10.0 + 2.0 + 1.0);
}

#[test]
fn slots_are_the_limit() {
    // Seen to fail with slots that are not given back, and with all engines in one.
    let (fan, slots) = (schedule(&fan(8), &Ranked::default()), Slots::default());
    let times = [1, 2, 3, 8].map(|compute| makespan(&Simulation::new(&fan).slots(slots.compute(compute))));
    assert_eq!(times, [10.0, 6.0, 5.0, 3.0]);
    let mut shape = Shape::new();
    for (name, backend, command) in [
        ("up", Backend::Mixed, ""),
        ("down", Backend::Gpu, "copy-down"),
        ("task", Backend::Cpu, ""),
        ("kernel", Backend::Gpu, ""),
    ] {
        for copy in 0..2 {
            let node = shape.node(format!("{name} {copy}"), backend);
            shape.nodes_mut()[node.index()].command = Some(command.into());
        }
    }
    let alone = Slots::default().compute(1).copy_up(1).copy_down(1).cores(1);
    assert_eq!(makespan(&Simulation::new(&schedule(&shape, &Ranked::default())).slots(alone)), 2.0);
}

#[test]
fn with_slots_for_all_the_costs_decide() {
    // Seen to fail with hand-offs that cost something.
    for seed in 0..300 {
        let shape = random_shape(seed, 60);
        for policy in policies() {
            let schedule = schedule(&shape, policy);
            let (spans, simulation) = (schedule.spans(), Simulation::new(&schedule).slots(all()));
            let mut simulated = simulation.run().expect("a log").spans();
            assert_eq!(Span::makespan_us(&spans), Span::makespan_us(&simulated), "seed {seed}");
            assert!(Span::makespan_us(&spans) >= schedule.critical_path_us(), "seed {seed}");
            for span in spans {
                let place = simulated.iter().position(|other| *other == span).unwrap_or_else(|| panic!("{span:?}, seed {seed}"));
                simulated.swap_remove(place);
            }
            assert!(simulated.is_empty());
        }
    }
}

#[test]
fn a_hand_over_costs_what_it_costs() {
    let schedule = schedule(&fan(2), &PerOperator);
    assert_eq!(makespan(&Simulation::new(&schedule).hand_off_us(5.0)), 3.0 + 10.0);
    let error = Simulation::new(&schedule).hand_off_us(-1.0).run().expect_err("a negative time");
    assert_eq!(error.to_string(), "the hand-off takes -1.0 us: a time is from 0 to 10^12");
}

#[test]
fn plans_have_no_races_whatever_the_order() {
    // Seen to fail with points that carry nothing.
    for seed in 0..300 {
        let shape = random_shape(seed, 60);
        for policy in policies() {
            let simulation = Simulation::new(&schedule(&shape, policy)).order(Order::Seeded(seed)).one_at_a_time();
            assert_eq!(simulation.run().expect("a log").races(), Some(&[][..]), "seed {seed}, {}", policy.name());
        }
    }
}

#[test]
fn a_wait_that_is_taken_out_is_a_race() {
    // Seen to fail when only overlap in time counts as a race.
    let mut taken = 0;
    for seed in 0..200 {
        let shape = random_shape(seed, 40);
        for policy in policies() {
            let schedule = schedule(&shape, policy);
            let whole: Vec<(StreamKind, Vec<Step>)> =
                (0..schedule.streams()).map(|stream| (schedule.kind(stream), schedule.steps(stream).to_vec())).collect();
            for (stream, (_, steps)) in whole.iter().enumerate() {
                for wait in (0..steps.len()).filter(|&step| matches!(steps[step], Step::Wait(_))) {
                    let mut programs = whole.clone();
                    programs[stream].1.remove(wait);
                    let log = Simulation::of_programs(shape.clone(), programs).run().expect("a log");
                    let races = log.races().expect("clocks");
                    let is_edge = |race: &anabranch::sim::Race| {
                        shape.edges().iter().any(|edge| (edge.source, edge.target) == (race.earlier, race.later))
                    };
                    assert!(!races.is_empty() && races.iter().all(is_edge), "seed {seed}, {}", policy.name());
                    taken += 1;
                }
            }
        }
    }
    assert!(taken > 1_000, "{taken} waits");
}

#[test]
fn a_race_names_both_nodes_and_the_edge() {
    let mut shape = Shape::new();
    let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
    shape.read(a, 0, b);
    let programs = [a, b].map(|node| (StreamKind::Device(0), vec![Step::Run(node)])).to_vec();
    let log = Simulation::of_programs(shape, programs).run().expect("a log");
    let race = &log.races().expect("clocks")[0];
    assert_eq!((race.earlier, race.later), (a, b));
    assert_eq!(race.to_string(), "race: nothing orders 'b' after 'a': the edge 'a' -> 'b' needs a wait");
}

#[test]
fn exploring_goes_through_every_order_once() {
    // Seen to fail with only the last choice varied.
    for (width, expected) in [(1, 1), (2, 2), (3, 6), (4, 24), (5, 120)] {
        let simulation = Simulation::new(&schedule(&fan(width), &Ranked::default()));
        let mut orders = std::collections::BTreeSet::new();
        let explored = simulation.explore(1_000, |log| {
            let started = |event: &SimEvent| if let SimEvent::Start { node, .. } = event { Some(node.index()) } else { None };
            orders.insert(log.events().iter().filter_map(started).collect::<Vec<_>>());
            Ok(())
        });
        let explored = explored.expect("logs");
        assert_eq!((explored.orders, explored.is_complete, orders.len()), (expected, true, expected as usize));
    }
    let explored = Simulation::new(&schedule(&fan(8), &Ranked::default())).explore(100, |_| Ok(())).expect("logs");
    assert_eq!((explored.orders, explored.is_complete), (100, false));
}

#[test]
fn one_stream_has_one_order() {
    let explored = Simulation::new(&schedule(&fan(6), &Single)).explore(10, |_| Ok(())).expect("logs");
    assert_eq!((explored.orders, explored.is_complete), (1, true));
}

#[test]
fn a_seed_gives_the_same_log_everywhere() {
    // Seen to fail with another constant in the generator. The text and the sum were recorded on one machine
    // for all others.
    let mut shape = fan(3);
    shape.nodes_mut()[2].cost_us = 2.5;
    let slots = Slots::default().compute(2);
    let log = |shape: &Shape, seed| {
        let simulation = Simulation::new(&schedule(shape, &PerOperator)).slots(slots).order(Order::Seeded(seed));
        simulation.run().expect("a log").to_string()
    };
    insta::assert_snapshot!("simulation", log(&shape, 7));
    // Fowler, Noll and Vo's hash over many logs.
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for seed in 0..200 {
        for byte in log(&random_shape(seed, 60), seed).bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(format!("{sum:016x}"), "749f571e7a9927f2");
}

#[test]
fn choices_replay_a_seed() {
    // Seen to fail with choices that are not recorded when there are two options.
    for seed in 0..200 {
        let shape = random_shape(seed, 60);
        let simulation = Simulation::new(&schedule(&shape, &Ranked::default())).slots(Slots::default().compute(2).cores(2));
        let log = simulation.clone().order(Order::Seeded(seed)).run().expect("a log");
        let again = simulation.order(Order::Replay(log.choices())).run().expect("a log");
        assert_eq!(log.to_string(), again.to_string(), "seed {seed}");
    }
}

#[test]
fn seeds_give_different_orders() {
    let simulation = Simulation::new(&schedule(&fan(8), &Ranked::default())).one_at_a_time();
    let logs: std::collections::BTreeSet<String> =
        (0..20).map(|seed| simulation.clone().order(Order::Seeded(seed)).run().expect("a log").to_string()).collect();
    assert!(logs.len() > 15, "{} orders", logs.len());
}

#[test]
fn a_fault_stops_what_depends_on_it_and_nothing_else() {
    // Seen to fail with dependants that run, and with all that comes later on the stream skipped.
    for seed in 0..300 {
        let shape = random_shape(seed, 40);
        let log = Simulation::new(&schedule(&shape, &PerOperator)).faults(Faults::new(seed).fail(0.1)).run().expect("a log");
        let mut is_bad = vec![false; shape.nodes().len()];
        log.failed().for_each(|node| is_bad[node.index()] = true);
        let mut skipped: Vec<NodeId> = Vec::new();
        for node in shape.topological_order() {
            // A node that reads only the shape of device work does not wait for its end.
            let is_submission = |edge: &Edge| {
                let is_device = shape.nodes()[edge.source.index()].backend != Backend::Cpu;
                is_device && matches!(edge.kind, EdgeKind::Data { metadata: true, .. })
            };
            let mut into = shape.edges().iter().filter(|edge| edge.target == node && !is_submission(edge));
            if into.any(|edge| is_bad[edge.source.index()]) {
                is_bad[node.index()] = true;
                skipped.push(node);
            }
        }
        let mut found: Vec<NodeId> = log.skipped().collect();
        found.sort();
        found.dedup();
        skipped.sort();
        assert_eq!(found, skipped, "seed {seed}");
    }
}

#[test]
fn a_lost_device_ends_what_runs_on_it() {
    let mut shape = fan(3);
    shape.nodes_mut()[2].devices = Some([1].into());
    let simulation = Simulation::new(&schedule(&shape, &Ranked::default())).faults(Faults::new(0).lose_device(1, 1.5));
    let log = simulation.run().expect("a log");
    let names = |nodes: Vec<NodeId>| nodes.iter().map(|node| shape.nodes()[node.index()].name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(log.failed().collect()), names(log.skipped().collect())), (vec!["m1".into()], vec!["join".into()]));
    let lost = log.events().iter().find(|event| matches!(event, SimEvent::End { ending: Ending::Lost, .. }));
    assert!(matches!(lost, Some(SimEvent::End { at_us: 1.5, .. })), "{log}");
}

#[test]
fn a_stalled_node_takes_longer() {
    let simulation = Simulation::new(&schedule(&fan(2), &Single));
    assert_eq!(makespan(&simulation.clone().faults(Faults::new(1).stall(1.0, 10.0))), 40.0);
    assert_eq!(makespan(&simulation.faults(Faults::new(1).stall(0.0, 10.0))), 4.0);
}

#[test]
fn programs_that_wait_for_ever_are_named() {
    let mut shape = Shape::new();
    let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
    let wait = |stream, seq| Step::Wait(Point::new(stream, seq));
    let programs =
        vec![(StreamKind::Device(0), vec![Step::Run(a)]), (StreamKind::Device(0), vec![wait(0, 0), wait(0, 1), Step::Run(b)])];
    let error = Simulation::of_programs(shape, programs).run().expect_err("nobody records");
    assert_eq!(error.to_string(), "the programs never come to node 'b': they wait for each other in a cycle");
    assert!(error.is_invalid_plan());
}

#[test]
fn programs_that_say_nothing_or_nonsense_are_errors() {
    // Each was seen to panic, or to name an unrelated node.
    let wait = Step::Wait(Point::new(0, 1));
    let fault = |shape: Shape, steps: Vec<Step>| {
        Simulation::of_programs(shape, vec![(StreamKind::Device(0), steps)]).run().expect_err("a fault").to_string()
    };
    let text = "the program of stream 0 ends with a wait for a point that nothing records";
    assert_eq!(fault(Shape::new(), vec![wait]), text);
    let mut shape = Shape::new();
    let a = shape.node("a", Backend::Gpu);
    assert_eq!(fault(shape, vec![Step::Run(a), wait]), text);
    assert_eq!(
        fault(Shape::new(), vec![Step::Run(a)]),
        "the program of stream 0 runs node number 0, counted from 0, and the graph has 0"
    );
}

#[test]
fn faults_out_of_range_are_refused() {
    // Seen to make time run backwards.
    let simulation = Simulation::new(&schedule(&fan(2), &Single));
    let fault = |faults: Faults| simulation.clone().faults(faults).run().expect_err("out of range").to_string();
    assert_eq!(fault(Faults::new(1).fail(7.0)), "a fault has the probability 7.0: it is from 0 to 1");
    assert_eq!(fault(Faults::new(1).stall(1.0, -3.0)), "a fault has the factor or time -3.0: it is from 0 to 10^12");
    assert_eq!(fault(Faults::new(1).lose_device(0, f64::NAN)), "a fault has the factor or time NaN: it is from 0 to 10^12");
}
