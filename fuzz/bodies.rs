//! What the fuzz targets check. Also run by the tests over the corpus, so that what was found once stays found.
#![allow(dead_code)]

use anabranch::Ranked;
use anabranch::graph::{Backend, Edge, EdgeKind, Memory, NodeId, Shape};
use anabranch::policy::{CriticalPath, MinStreams, PerBackend, PerOperator, Policy, ReadySet, Single};
use anabranch::sim::Simulation;

/// Any bytes are a graph or an error; a graph comes back as it was written.
pub(crate) fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Shape::from_json(text) {
        Ok(shape) => {
            let written = shape.to_json();
            let again = Shape::from_json(&written).expect("what was written can be read");
            assert_eq!(shape, again);
            // Policies have their own target; large graphs would only slow this one down.
            if shape.nodes().len() <= 64 {
                shape.schedule().expect("a schedule").verify().expect("a correct plan");
            }
        }
        Err(error) => assert!(error.is_invalid_graph() && error.to_string().len() < 2_000, "{error}"),
    }
}

/// Every policy makes a plan of every graph that keeps every edge, with no wait too many and no race.
pub(crate) fn plan(bytes: &[u8]) {
    let shape = shape(bytes);
    let policies: [&dyn Policy; 9] = [
        &Single,
        &PerBackend,
        &PerOperator,
        &ReadySet,
        &Ranked::default(),
        &Ranked::default().max_streams(5),
        &MinStreams,
        &CriticalPath::default().streams(2),
        &CriticalPath::default().streams(3).hand_off_us(0.0),
    ];
    for policy in policies {
        let schedule = shape.schedule_with(policy).expect("a schedule");
        schedule.verify().unwrap_or_else(|error| panic!("{}: {error}\n{schedule}", policy.name()));
        let log = Simulation::new(&schedule).run().expect("a log");
        assert_eq!(log.races(), Some(&[][..]), "{}", policy.name());
        assert!(log.makespan_us() >= schedule.critical_path_us());
    }
}

/// A graph of up to 48 nodes that the bytes describe: for each node its backend, devices, command and cost, then its sources.
fn shape(bytes: &[u8]) -> Shape {
    let mut bytes = bytes.iter().copied();
    let mut next = || bytes.next().unwrap_or(0) as usize;
    let (count, is_reversed) = (1 + next() % 48, next() % 2 == 1);
    let devices: [Option<&[u32]>; 6] = [None, Some(&[0]), Some(&[1]), Some(&[0, 1]), Some(&[]), Some(&[2, 0, 1])];
    let mut shape = Shape::new();
    let mut ids: Vec<NodeId> = Vec::new();
    for node in 0..count {
        let looks = next();
        let backend = [Backend::Cpu, Backend::Gpu, Backend::Mixed, Backend::Gpu][looks % 4];
        ids.push(shape.node(format!("n{node}"), backend));
        let made = &mut shape.nodes_mut()[node];
        made.devices = devices[looks / 4 % 6].map(Into::into);
        made.command = (looks >= 128).then(|| ["a", "b", "c"][looks % 3].into());
        made.cost_us = (looks % 7) as f64;
    }
    if is_reversed {
        ids.reverse();
    }
    for target in 1..count {
        for _ in 0..next() % 5 {
            let (source, look) = (ids[target - 1 - next() % target], next());
            let kind = match look % 4 {
                0 => EdgeKind::Order,
                memory => {
                    let memory = (memory == 1).then_some(Memory::Cpu);
                    EdgeKind::Data { output: (look / 4 % 3) as u32, memory, metadata: look >= 224 }
                }
            };
            shape.edge(Edge::new(source, ids[target], kind));
        }
    }
    if next() % 3 == 1 {
        shape.output(ids[next() % count], 0);
    }
    shape
}
