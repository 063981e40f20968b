//! The log of a simulation: events in the order of virtual time, and races.

use std::fmt;
use std::sync::Arc;

use crate::graph::{NodeId, Shape};
use crate::name::Name;
use crate::plan::{Span, StreamKind, StreamName};
use crate::ranks::On;

/// The end of a node.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::{Ending, Faults, SimEvent, Simulation};
///
/// # let mut shape = Shape::new();
/// # let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// # shape.read(a, 0, b);
/// let log = Simulation::new(&shape.schedule()?).faults(Faults::new(7).fail_node(a)).run()?;
/// let endings = log.events().iter().filter_map(|event| match event {
///     SimEvent::End { ending, .. } => Some(*ending),
///     _ => None,
/// });
/// assert_eq!(endings.collect::<Vec<_>>(), [Ending::Failed, Ending::Skipped]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// The node made its value.
    Done,
    /// The node failed by an injected fault.
    Failed,
    /// The node did not run, because a node before it failed.
    Skipped,
    /// The node's device was lost.
    Lost,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Lost => "lost",
        })
    }
}

/// An event of a simulation.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::{SimEvent, Simulation};
///
/// # let mut shape = Shape::new();
/// # let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// # shape.read(a, 0, b);
/// let log = Simulation::new(&shape.schedule()?).run()?;
/// let starts = log.events().iter().filter_map(|event| match *event {
///     SimEvent::Start { at_us, node, .. } => Some((node, at_us)),
///     _ => None,
/// });
/// assert_eq!(starts.collect::<Vec<_>>(), [(a, 0.0), (b, 1.0)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum SimEvent {
    /// A stream began with a node.
    Start {
        /// The time in microseconds.
        at_us: f64,
        /// The stream.
        stream: u32,
        /// The node.
        node: NodeId,
    },
    /// A stream ended a node.
    End {
        /// The time in microseconds.
        at_us: f64,
        /// The stream.
        stream: u32,
        /// The node.
        node: NodeId,
        /// The node's end.
        ending: Ending,
    },
    /// A stream reached a point.
    Record {
        /// The time in microseconds.
        at_us: f64,
        /// The stream.
        stream: u32,
        /// The number of the point on this stream.
        seq: u32,
    },
    /// A stream continued after a wait for a point of another stream.
    Pass {
        /// The time in microseconds.
        at_us: f64,
        /// The stream.
        stream: u32,
        /// The stream and the number of the point.
        point: (u32, u32),
    },
}

/// Two nodes of which one depends on the other, but which the programs do not order.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::plan::{Step, StreamKind};
/// use anabranch::sim::Simulation;
///
/// let mut shape = Shape::new();
/// let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(a, 0, b);
/// // A stream for each node, and no wait between them.
/// let programs = [a, b].map(|node| (StreamKind::Device(0), vec![Step::Run(node)]));
/// let log = Simulation::of_programs(shape, programs.to_vec()).run()?;
/// let races = log.races().unwrap_or_default();
/// assert_eq!((races[0].earlier, races[0].later), (a, b));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Race {
    /// The node that should come first.
    pub earlier: NodeId,
    /// The node that depends on it.
    pub later: NodeId,
    /// Their names.
    pub(super) names: (Name, Name),
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (earlier, later) = &self.names;
        write!(f, "race: nothing orders '{later}' after '{earlier}': the edge '{earlier}' -> '{later}' needs a wait")
    }
}

/// The log of one simulation. Made by [`Simulation::run`](crate::sim::Simulation::run).
///
/// `{}` writes a line for each event. Equal simulations write the same bytes on every machine.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::Simulation;
///
/// # let mut shape = Shape::new();
/// # let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// # shape.read(a, 0, b);
/// let log = Simulation::new(&shape.schedule()?).run()?;
/// println!("{log}");
/// assert_eq!((log.makespan_us(), log.spans().len()), (2.0, 2));
/// assert_eq!(log.races(), Some(&[][..]));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SimLog {
    pub(super) shape: Arc<Shape>,
    pub(super) names: Arc<[StreamName]>,
    pub(super) kinds: Vec<StreamKind>,
    /// Where each stream did its work. Empty if that was one machine.
    pub(super) on: Arc<[On]>,
    /// The number of nodes of each item. 0 if the nodes are not those of items.
    pub(super) nodes_of_item: u32,
    /// The logs of graphs inside of loops and branches, with their paths, for pictures.
    pub(super) inside: Vec<(String, SimLog)>,
    pub(super) events: Vec<SimEvent>,
    pub(super) races: Option<Vec<Race>>,
    pub(super) choices: Vec<(u32, u32)>,
}

impl SimLog {
    /// Returns the events, in the order of time.
    pub fn events(&self) -> &[SimEvent] {
        &self.events
    }

    /// Returns the shape: the ids of its nodes are those of the events.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the times at which nodes ran, in the order of their ends. Skipped nodes are left out.
    pub fn spans(&self) -> Vec<Span> {
        let mut started = vec![0.0; self.kinds.len()];
        let mut spans = Vec::new();
        for event in &self.events {
            match *event {
                SimEvent::Start { at_us, stream, .. } => started[stream as usize] = at_us,
                SimEvent::End { at_us, stream, node, ending } if ending != Ending::Skipped => {
                    spans.push(Span { node, stream, start_us: started[stream as usize], end_us: at_us });
                }
                _ => {}
            }
        }
        spans
    }

    /// Returns the time at which the last node ended, in microseconds.
    pub fn makespan_us(&self) -> f64 {
        Span::makespan_us(&self.spans())
    }

    /// Returns the dependencies that the programs do not keep. The list is empty for each schedule of this
    /// library.
    ///
    /// Races depend on the waits of streams, not on overlaps in time, so a simulation in any order finds all
    /// of them. Returns None if the schedule is too large for this check: if streams times records are above
    /// 67 million.
    pub fn races(&self) -> Option<&[Race]> {
        self.races.as_deref()
    }

    /// Returns the choices among nodes that could run next. [`Order::Replay`](crate::sim::Order::Replay)
    /// repeats them. The list is empty for [`Order::InOrder`](crate::sim::Order::InOrder).
    pub fn choices(&self) -> Vec<u32> {
        self.choices.iter().map(|choice| choice.0).collect()
    }

    /// Returns the nodes that failed, by a fault or because their device was lost.
    pub fn failed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ended(|ending| matches!(ending, Ending::Failed | Ending::Lost))
    }

    /// Returns the nodes that did not run because a node before them failed.
    pub fn skipped(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ended(|ending| ending == Ending::Skipped)
    }

    /// Returns a node's name on one line.
    fn name(&self, node: NodeId) -> String {
        self.shape.name_of(node).replace(char::is_control, " ")
    }

    fn ended(&self, is_wanted: fn(Ending) -> bool) -> impl Iterator<Item = NodeId> + '_ {
        self.events.iter().filter_map(move |event| match *event {
            SimEvent::End { node, ending, .. } if is_wanted(ending) => Some(node),
            _ => None,
        })
    }
}

impl fmt::Display for SimLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<(String, String)> = self.names.iter().map(|name| (name.stream(), name.points())).collect();
        let width = names.iter().map(|name| name.0.len()).max().unwrap_or(0);
        for event in &self.events {
            let (at_us, stream, text) = match *event {
                SimEvent::Start { at_us, stream, node } => (at_us, stream, format!("run {}", self.name(node))),
                SimEvent::End { at_us, stream, node, ending } => (at_us, stream, format!("{ending} {}", self.name(node))),
                SimEvent::Record { at_us, stream, seq } => (at_us, stream, format!("record {}@{seq}", names[stream as usize].1)),
                SimEvent::Pass { at_us, stream, point: (other, seq) } => {
                    let point = names.get(other as usize).map_or("?", |name| &name.1);
                    (at_us, stream, format!("wait {point}@{seq}"))
                }
            };
            writeln!(f, "{at_us:>12.3} us  {:width$}  {text}", names[stream as usize].0)?;
        }
        self.races.iter().flatten().try_for_each(|race| writeln!(f, "{race}"))
    }
}
