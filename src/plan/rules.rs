//! The orders that a run over items must keep, as edges of the unrolled pipeline. They are derived from the
//! graph and the settings, not from the arrows that must keep them.
//!
//! ```text
//!  rule                                            edges
//!  an edge of the graph                            source #k ─▶ target #k
//!  a state goes from item to item                  holder #k ─▶ holder #k + 1
//!  feedback of lag l                               maker #k, and the end of its phase ─▶ reader #k + l
//!  a feedback's cell is read before it is written  reader #k ─▶ the end of its phase #k + R - l
//!  a feed that fails repeats the one before        the end of its phase #k ─▶ its end #k + 1
//!  an edge to the item s later                     source #k ─▶ target #k + s
//!  a slot has one item                             begin of #k ─▶ node #k ─▶ result of #k ─▶ begin of #k + R
//!  a serial phase                                  its end #k ─▶ its begin #k + 1
//!  lockstep                                        the end of phase q #k + p - q - 1 ─▶ the begin of p #k
//!  a gate has begun anew                           the begin of its phase #k - R ─▶ each arrival for #k
//! ```
//! R is the number of slots. The value of a feedback is copied at the end of its maker's phase.
//!
//! The last rule, and the counts of all gates, prove that exactly the arrivals for an item open a gate.

use super::arrivals::Arrivals;
use super::unrolled::{Ids, OverItems};
use crate::graph::{ItemEdge, Maker, NodeId, Shape, Stays};

impl OverItems<'_> {
    /// Adds these edges to a shape that has the edges within items.
    pub(super) fn add_rules(&self, shape: &mut Shape, ids: Ids, arrivals: &Arrivals<'_>) {
        let mut rules = Rules { over: self, shape, ids };
        rules.add_between();
        rules.add_item_edges();
        for item in 0..ids.items {
            rules.add_slot(item);
            rules.add_beat(item);
            rules.add_gates(item, arrivals);
        }
    }
}

struct Rules<'a> {
    over: &'a OverItems<'a>,
    shape: &'a mut Shape,
    ids: Ids,
}

impl Rules<'_> {
    /// Adds an edge from a node or mark of each item to one of a later item.
    fn add(&mut self, later: u32, source: impl Fn(u32) -> NodeId, target: impl Fn(u32) -> NodeId) {
        for item in 0..self.ids.items.saturating_sub(later) {
            self.shape.order(source(item), target(item + later));
        }
    }

    /// Adds the edges for states and feedback.
    fn add_between(&mut self) {
        let (graph, ids, slots) = (self.over.graph, self.ids, self.over.pipelining.slots);
        for between in &graph.between {
            match between.is {
                Stays::State { holder } => {
                    let of = |holder| move |item| ids.node(item, holder);
                    holder.into_iter().for_each(|holder| self.add(1, of(holder), of(holder)));
                }
                Stays::Feedback { from, .. } => {
                    let readers = &graph.inputs[between.input as usize].readers;
                    let (Some(from), Some(&first)) = (from, readers.first()) else { continue };
                    let maker = if let Maker::Node(maker) = graph.values[from as usize].maker { Some(maker) } else { None };
                    // An input exists in every phase.
                    let made = maker.unwrap_or(first);
                    let phase_of = |node: NodeId| self.over.phase_of[node.index()];
                    let lag = 1 + phase_of(made) - phase_of(first);
                    let phase = self.over.phase(made);
                    let end = |item| ids.end(item, phase);
                    for &reader in readers {
                        let reader = |item| ids.node(item, reader);
                        maker.into_iter().for_each(|maker| self.add(lag, |item| ids.node(item, maker), reader));
                        self.add(lag, end, reader);
                        self.add(slots - lag, reader, end);
                    }
                    self.add(1, end, end);
                }
            }
        }
    }

    fn add_item_edges(&mut self) {
        let (graph, ids) = (self.over.graph, self.ids);
        for &ItemEdge { source, target, items } in &graph.item_edges {
            self.add(items, |item| ids.node(item, source), |item| ids.node(item, target));
        }
    }

    /// Orders all nodes of an item after its begin, before its result, and before the next item of its slot.
    fn add_slot(&mut self, item: u32) {
        let (ids, slots) = (self.ids, self.over.pipelining.slots);
        for node in (0..ids.nodes).map(NodeId) {
            let node = ids.node(item, node);
            self.shape.order(ids.item(item), node);
            self.shape.order(node, ids.result(item));
        }
        for phase in 0..ids.depth {
            self.shape.order(ids.end(item, phase), ids.result(item));
        }
        if let Some(before) = item.checked_sub(slots) {
            self.shape.order(ids.result(before), ids.item(item));
        }
    }

    /// Adds the edges for the settings.
    fn add_beat(&mut self, item: u32) {
        let (ids, wanted) = (self.ids, self.over.wanted);
        for phase in 0..ids.depth {
            if wanted.is_serial && item > 0 {
                self.shape.order(ids.end(item - 1, phase), ids.begin(item, phase));
            }
            for other in (0..ids.depth).filter(|_| wanted.is_lockstep) {
                // The previous schedule iteration.
                let before = (item + phase).checked_sub(other + 1).filter(|&before| before < ids.items);
                before.into_iter().for_each(|before| self.shape.order(ids.end(before, other), ids.begin(item, phase)));
            }
        }
    }

    /// Adds edges so that no arrival comes before the reset of its gate.
    fn add_gates(&mut self, item: u32, arrivals: &Arrivals<'_>) {
        let Some(before) = item.checked_sub(self.over.pipelining.slots) else { return };
        for phase in 0..self.ids.depth {
            for &cause in arrivals.at(item, phase) {
                self.shape.order(self.ids.begin(before, phase), self.ids.cause(cause));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::plan::pipelining::{Arrow, Pipelining};
    use crate::plan::{Ranked, Wanted};

    const SLOTS: u32 = 5;
    const ELASTIC: Wanted = Wanted { slots: SLOTS, is_lockstep: false, is_serial: false };

    /// Three phases: a, then b with a state, then c, whose value is fed back to a.
    fn cycle() -> Graph {
        let mut g = Graph::new();
        let (before, mut sum) = (g.feedback("before", || 0), g.state("sum", || 0));
        let a = g.task("a", &*before, |x: &u64| *x);
        let b = g.task("b", (&mut sum, &a), |_: &mut u64, x: &u64| *x);
        let c = g.task("c", &b, |x: &u64| *x);
        g.feed(before, &c);
        g.output("c", &c);
        g
    }

    /// Two phases: a reads the value that b makes two items before, and no other edge orders them.
    fn apart() -> Graph {
        let mut g = Graph::new();
        let before = g.feedback("before", || 0);
        let a = g.task("a", &*before, |x: &u64| *x);
        let b = g.task("b", (), || 1);
        g.feed(before, &b);
        g.output("a", &a);
        g.output("b", &b);
        g
    }

    /// Two phases without an edge between them.
    fn free() -> Graph {
        let mut g = Graph::new();
        ["a", "b"].into_iter().for_each(|name| {
            let node = g.task(name, (), || 1);
            g.output(name, &node);
        });
        g
    }

    /// Verifies a graph with one phase per node, after a change of the rules of its run.
    fn verify(graph: &Graph, wanted: Wanted, change: impl FnOnce(&mut Pipelining)) -> String {
        let phase_of: Vec<u32> = (0..graph.shape().nodes().len() as u32).collect();
        let mut pipelining = Pipelining::new(graph, &phase_of, &[], wanted).expect("the phases fit");
        change(&mut pipelining);
        let plan = graph.compile_piped(&Ranked::default()).expect("a graph");
        let plan = plan.inner().in_phases(phase_of.as_slice().into(), &Ranked::default()).expect("a graph");
        let over = OverItems { graph, schedule: plan.schedule(), pipelining: &pipelining, phase_of: &phase_of, wanted };
        over.verify(2 * SLOTS + 3).map_or_else(|error| error.to_string(), |()| "right".into())
    }

    /// Removes an arrow.
    fn without(from: u32, phase: u32, shift: i32) -> impl FnOnce(&mut Pipelining) {
        move |pipelining| {
            let arrows = &mut pipelining.phases[from as usize].arrows;
            let place = arrows.iter().position(|&arrow| arrow == Arrow { phase, shift });
            arrows.remove(place.expect("the arrow is there"));
            pipelining.phases[phase as usize].arrivals -= 1;
        }
    }

    fn nothing_orders(later: &str, earlier: &str) -> String {
        format!("nothing orders node '{later}' after '{earlier}', which it depends on: its stream needs a wait")
    }

    // The tests of this file test the checks: each change of a run must be found.

    #[test]
    fn an_arrow_that_is_left_out_is_missed() {
        for graph in [cycle(), apart(), free()] {
            assert_eq!(verify(&graph, ELASTIC, |_| {}), "right");
        }
        let cycle = cycle();
        assert_eq!(verify(&cycle, ELASTIC, without(1, 2, 0)), nothing_orders("c #0", "b #0"));
        assert_eq!(verify(&cycle, ELASTIC, without(1, 1, 1)), nothing_orders("b #2", "b #1"));
        assert_eq!(verify(&cycle, ELASTIC, without(2, 0, 3)), nothing_orders("a #4", "c #1"));
        assert_eq!(verify(&cycle, ELASTIC, without(2, 2, 1)), nothing_orders("the end of phase 3 #2", "the end of phase 3 #1"));
        assert_eq!(verify(&apart(), ELASTIC, without(0, 1, 3)), nothing_orders("the end of phase 2 #3", "a #0"));
    }

    #[test]
    fn an_arrow_of_the_settings_that_is_left_out_is_missed() {
        let (graph, orders) = (cycle(), |later: &str, earlier: &str| {
            nothing_orders(&format!("the begin of phase {later}"), &format!("the end of phase {earlier}"))
        });
        let serial = Wanted { is_serial: true, ..ELASTIC };
        assert_eq!(verify(&graph, serial, |_| {}), "right");
        assert_eq!(verify(&graph, serial, without(0, 0, 1)), orders("1 #2", "1 #1"));

        let lockstep = Wanted { is_lockstep: true, ..ELASTIC };
        assert_eq!(verify(&graph, lockstep, |_| {}), "right");
        assert_eq!(verify(&graph, lockstep, without(2, 0, 3)), orders("1 #3", "3 #0"));
        assert_eq!(verify(&graph, lockstep, without(0, 2, -1)), orders("3 #0", "1 #1"));
        assert_eq!(verify(&graph, lockstep, without(0, 1, 0)), orders("2 #0", "1 #0"));
        assert_eq!(verify(&graph, lockstep, without(0, 0, 1)), orders("1 #1", "1 #0"));
    }

    #[test]
    fn a_gate_that_counts_wrong_is_found() {
        let gate = |phase: u32, counts: u32, item: u32, come: u32| {
            format!("the gate of phase {phase} counts {counts} arrivals for item {item}, and {come} come")
        };
        let more = |pipelining: &mut Pipelining| pipelining.phases[1].arrivals += 1;
        assert_eq!(verify(&cycle(), ELASTIC, more), gate(2, 2, 0, 1));
        let no_source = |pipelining: &mut Pipelining| pipelining.begun_by_source.clear();
        assert_eq!(verify(&cycle(), ELASTIC, no_source), gate(1, 1, 0, 0));
        let no_arrow = |pipelining: &mut Pipelining| pipelining.phases[1].arrows.clear();
        assert_eq!(verify(&cycle(), ELASTIC, no_arrow), gate(2, 2, 0, 1));
    }

    #[test]
    fn an_arrival_before_its_gate_begins_anew_is_found() {
        let early = |pipelining: &mut Pipelining| {
            pipelining.phases[0].arrows.push(Arrow { phase: 1, shift: SLOTS as i32 - 1 });
            pipelining.phases[1].arrivals += 1;
        };
        assert_eq!(verify(&free(), ELASTIC, early), nothing_orders("the end of phase 1 #4", "the begin of phase 2 #3"));
    }

    #[test]
    fn phases_that_wait_for_each_other_are_found() {
        let cycle_of_waits = |pipelining: &mut Pipelining| {
            pipelining.phases[2].arrows.push(Arrow { phase: 1, shift: 0 });
            pipelining.phases[1].arrivals += 1;
        };
        assert_eq!(
            verify(&cycle(), ELASTIC, cycle_of_waits),
            "the programs never come to node 'b #0': they wait for each other in a cycle"
        );
    }
}
