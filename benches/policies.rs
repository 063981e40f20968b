//! Question: which policy gives the shortest makespans for the fewest streams and waits, and so should be the
//! default?
//!
//! Method: no clock. Every policy plans families of graphs. The simulator executes the plans in virtual time
//! on a device that runs 8 kernels at once, where a wait costs 2 µs. A makespan is divided by the lower bound
//! of its graph: the larger of the critical path and the work over the slots. Costs are drawn from 5 to 50
//! µs, from the seed of the bench's shapes. The figures are the same on every machine.
//!
//! ```text
//! cargo bench --bench policies                 prints the tables
//! cargo bench --bench policies -- --write      and writes them into docs/performance/policies.md
//! ```

#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/shapes.rs"]
#[allow(dead_code)]
mod shapes;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use anabranch::Ranked;
use anabranch::graph::{Backend, NodeId, Shape};
use anabranch::policy::{CriticalPath, MinStreams, PerBackend, PerOperator, Policy, ReadySet, Single};
use anabranch::sim::{Simulation, Slots};
use clap::Parser;

use crate::markers::Output;
use crate::shapes::{Form, SEED};
use crate::table::Table;

/// Kernels at once.
const SLOTS: u32 = 8;
/// The cost of a wait, in microseconds.
const HAND_OFF_US: f64 = 2.0;

/// Compares the policies on the simulator.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    output: Output,
}

fn main() {
    let args = Args::parse();
    let policies: [&dyn Policy; 9] = [
        &Single,
        &PerBackend,
        &PerOperator,
        &ReadySet,
        &Ranked::default(),
        &Ranked::default().max_streams(SLOTS),
        &MinStreams,
        &CriticalPath::default().streams(SLOTS).hand_off_us(HAND_OFF_US),
        &CriticalPath::default().streams(2 * SLOTS).hand_off_us(HAND_OFF_US),
    ];
    let families = families();
    let head = ["policy".to_owned()].into_iter().chain(families.iter().map(|family| family.0.clone()));
    let mut table = Table::new(head.chain(["mean", "streams", "waits"].map(String::from)));
    for policy in policies {
        let (mut cells, mut ratios, mut streams, mut waits) = (Vec::new(), Vec::new(), 0, 0);
        let mut name = policy.name().to_owned();
        for (_, shape) in &families {
            let schedule = shape.schedule_with(policy).expect("shapes are valid graphs");
            let slots = Slots::default().compute(SLOTS);
            let log = Simulation::new(&schedule).slots(slots).hand_off_us(HAND_OFF_US).run().expect("plans end");
            if let Some(remark) = schedule.remark().filter(|_| policy.name() != "min-streams") {
                name = format!("{}, {remark}", policy.name());
            }
            let ratio = log.makespan_us() / bound_us(shape, schedule.critical_path_us());
            cells.push(format!("{ratio:.2}"));
            ratios.push(ratio);
            (streams, waits) = (streams + schedule.streams(), waits + schedule.waits());
        }
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let row = [name].into_iter().chain(cells).chain([format!("{mean:.2}"), streams.to_string(), waits.to_string()]);
        table.push(row);
    }
    let report = format!(
        "Makespans over their lower bounds, {SLOTS} kernels at once, {HAND_OFF_US} µs for a wait; the mean is geometric; streams and waits are summed \
         over all graphs. Seed {SEED:#x}.\n\n{}",
        table.markdown()
    );
    args.output.publish("bench:policies", &report);
}

/// A lower bound of every plan: all work on all slots, or the nodes of the most expensive path in sequence.
fn bound_us(shape: &Shape, critical_path_us: f64) -> f64 {
    let work_us: f64 = shape.nodes().iter().map(|node| node.cost_us).sum();
    critical_path_us.max(work_us / f64::from(SLOTS))
}

/// The bench's shapes, and three that resemble real programs.
fn families() -> Vec<(String, Shape)> {
    let mut families: Vec<(String, Shape)> =
        Form::ALL.iter().map(|form| (form.to_string(), gpu_shape(&form.shape(1_000)))).collect();
    families.push(("branches".into(), branches(12, 4, 6)));
    families.push(("pipelines".into(), pipelines(24, 8)));
    families.push(("skips".into(), skips(120)));
    families.iter_mut().for_each(|(_, shape)| draw_costs(shape));
    families
}

fn gpu_shape(shape: &shapes::Shape) -> Shape {
    let mut gpu = Shape::new();
    let mut ids = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let id = gpu.node(node.to_string(), Backend::Gpu);
        shape.preds(node).iter().for_each(|&pred| gpu.read(ids[pred as usize], 0, id));
        ids.push(id);
    }
    gpu
}

/// Blocks that fork into branches of different lengths and join, one block after the other, as in networks
/// for vision.
fn branches(blocks: usize, width: usize, longest: usize) -> Shape {
    let mut shape = Shape::new();
    let mut last: Option<NodeId> = None;
    for block in 0..blocks {
        let fork = shape.node(format!("fork{block}"), Backend::Gpu);
        last.into_iter().for_each(|last| shape.read(last, 0, fork));
        let join = shape.node(format!("join{block}"), Backend::Gpu);
        for branch in 0..width {
            let mut before = fork;
            for step in 0..1 + branch * longest / width {
                let node = shape.node(format!("b{block}.{branch}.{step}"), Backend::Gpu);
                shape.read(before, 0, node);
                before = node;
            }
            shape.read(before, 0, join);
        }
        last = Some(join);
    }
    shape
}

/// Independent chains that are loaded one after the other: a copy each, then kernels.
fn pipelines(count: usize, length: usize) -> Shape {
    let mut shape = Shape::new();
    for chain in 0..count {
        let mut before = shape.node(format!("load{chain}"), Backend::Mixed);
        for step in 0..length {
            let node = shape.node(format!("p{chain}.{step}"), Backend::Gpu);
            shape.read(before, 0, node);
            before = node;
        }
    }
    shape
}

/// A chain with side branches that come back a few nodes later.
fn skips(length: usize) -> Shape {
    let mut shape = Shape::new();
    let spine: Vec<NodeId> = (0..length).map(|node| shape.node(format!("s{node}"), Backend::Gpu)).collect();
    spine.windows(2).for_each(|pair| shape.read(pair[0], 0, pair[1]));
    for start in (0..length.saturating_sub(4)).step_by(3) {
        let side = shape.node(format!("side{start}"), Backend::Gpu);
        shape.read(spine[start], 0, side);
        shape.read(side, 0, spine[start + 4]);
    }
    shape
}

/// Gives each node a cost from 5 to 50 µs.
fn draw_costs(shape: &mut Shape) {
    let mut word = SEED;
    for node in shape.nodes_mut() {
        // Knuth's MMIX generator; its high bits are good enough for costs.
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        node.cost_us = 5.0 + ((word >> 33) % 451) as f64 / 10.0;
    }
}
