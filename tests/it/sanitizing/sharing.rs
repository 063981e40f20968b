//! Random graphs of kernels that share buffers without the graph's knowledge. Edges order the kernels, or are
//! missing. The races are computed from the programs of the schedule alone.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use anabranch::graph::NodeId;
use anabranch::plan::{Plan, Schedule, Step};
use anabranch::{BoxError, Buffer, DeviceStream, Error, Executor, Graph, Inputs, Value};

use crate::dice::Dice;
use crate::support::block_on;

/// The buffers that all nodes can access, and their length.
pub(crate) type Shared = Arc<Vec<Mutex<Buffer<f32>>>>;
const BUFFERS: usize = 4;
const LEN: usize = 8;

/// Uploads the buffers in a run of its own.
pub(crate) fn shared(exec: &Executor) -> Shared {
    let made = Arc::new(Mutex::new(Vec::new()));
    let (mut g, list) = (Graph::new(), made.clone());
    let make = g.try_kernel("make", (), move |s: &mut DeviceStream| {
        for _ in 0..BUFFERS {
            list.lock().unwrap().push(Mutex::new(s.upload(&[0.0_f32; LEN])?));
        }
        Ok(())
    });
    g.output("make", &make);
    block_on(exec.run(&g.compile().unwrap(), Inputs::new())).unwrap();
    Arc::new(std::mem::take(&mut *made.lock().unwrap()))
}

#[derive(Clone)]
struct Use {
    buffer: usize,
    elements: Range<usize>,
    is_write: bool,
}

impl Use {
    fn random(dice: &mut Dice) -> Self {
        let elements = [0..LEN, 0..LEN / 2, LEN / 2..LEN, 2..LEN - 2][dice.below(4)].clone();
        Self { buffer: dice.below(BUFFERS), elements, is_write: dice.below(3) == 0 }
    }

    fn clashes(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.elements, &other.elements);
        let is_apart = mine.end <= theirs.start || theirs.end <= mine.start;
        self.buffer == other.buffer && !is_apart && (self.is_write || other.is_write)
    }

    fn act(&self, s: &mut DeviceStream, shared: &Shared) -> Result<(), BoxError> {
        let mut buffer = shared[self.buffer].lock().unwrap();
        if self.is_write {
            s.fill(&mut buffer.slice_mut(self.elements.clone()), 1.0)?;
        } else {
            drop(s.download(&buffer.slice(self.elements.clone()))?);
        }
        Ok(())
    }
}

/// Nodes by number, the buffers that each uses, and the edges that order them. A node without buffers is a
/// host node.
pub(crate) struct Case {
    uses: Vec<Vec<Use>>,
    pub(crate) edges: Vec<(usize, usize)>,
}

impl Case {
    /// A correct graph: every two conflicting nodes are ordered.
    pub(crate) fn random(dice: &mut Dice, has_hosts: bool) -> Self {
        let nodes = 3 + dice.below(14);
        let mut uses = Vec::new();
        for _ in 0..nodes {
            let is_host = has_hosts && dice.below(4) == 0;
            let count = if is_host { 0 } else { 1 + dice.below(2) };
            uses.push((0..count).map(|_| Use::random(dice)).collect());
        }
        let mut case = Self { uses, edges: Vec::new() };
        let mut before: Vec<HashSet<usize>> = Vec::new();
        for target in 0..nodes {
            let mut known = HashSet::new();
            for source in (0..target).rev() {
                let is_wanted = case.clash(source, target) || dice.below(8) == 0;
                if is_wanted && !known.contains(&source) {
                    case.edges.push((source, target));
                    known.extend(&before[source]);
                    known.insert(source);
                }
            }
            before.push(known);
        }
        case
    }

    fn clash(&self, one: usize, other: usize) -> bool {
        self.uses[one].iter().any(|one| self.uses[other].iter().any(|other| one.clashes(other)))
    }

    /// The graph, without one of its edges.
    pub(crate) fn graph(&self, shared: &Shared, without: Option<usize>) -> Graph {
        let (mut g, mut nodes) = (Graph::new(), Vec::<Value<()>>::new());
        for (number, uses) in self.uses.iter().enumerate() {
            let (name, uses, shared) = (number.to_string(), uses.clone(), shared.clone());
            nodes.push(match uses.is_empty() {
                true => g.task(name, (), || ()),
                false => {
                    g.try_kernel(name, (), move |s: &mut DeviceStream| uses.iter().try_for_each(|used| used.act(s, &shared)))
                }
            });
        }
        for (place, &(source, target)) in self.edges.iter().enumerate() {
            if Some(place) != without {
                g.node(&nodes[target]).after(&nodes[source]);
            }
        }
        g
    }

    /// Returns the pairs of conflicting nodes that the plan leaves unordered.
    pub(crate) fn races(&self, plan: &Plan) -> HashSet<(usize, usize)> {
        let before = before(plan.schedule());
        let pairs = (0..self.uses.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
        let is_open = |&(one, other): &(usize, usize)| !before[&other].contains(&one) && !before[&one].contains(&other);
        pairs.filter(|&(one, other)| self.clash(one, other)).filter(is_open).collect()
    }
}

/// Returns, for each node, by its name, the nodes that precede it in the streams' programs.
fn before(schedule: &Schedule) -> HashMap<usize, HashSet<usize>> {
    let number = |node: NodeId| schedule.shape().nodes()[node.index()].name.parse::<usize>().unwrap();
    let (mut next, mut known) = (vec![0; schedule.streams() as usize], vec![HashSet::new(); schedule.streams() as usize]);
    let (mut recorded, mut before) = (HashMap::new(), HashMap::new());
    loop {
        let mut has_moved = false;
        for stream in 0..schedule.streams() {
            let at = stream as usize;
            while let Some(step) = schedule.steps(stream).get(next[at]) {
                match step {
                    Step::Wait(point) => match recorded.get(point) {
                        Some(theirs) => known[at].extend(theirs),
                        None => break,
                    },
                    Step::Run(node) => {
                        before.insert(number(*node), known[at].clone());
                        known[at].insert(number(*node));
                    }
                    Step::Record(point) => _ = recorded.insert(*point, known[at].clone()),
                    Step::Release(_) => {}
                }
                next[at] += 1;
                has_moved = true;
            }
        }
        if !has_moved {
            return before;
        }
    }
}

/// Returns the pairs of nodes that a run's error reports as races, the smaller number first. Panics if the
/// error has another cause.
pub(crate) fn reported(error: &Error) -> HashSet<(usize, usize)> {
    let causes = std::iter::once(error).chain(error.others());
    let pair = |error: &Error| {
        assert!(error.is_race(), "{error:#}");
        let text = format!("{error:#}");
        let named = |before: &str| -> usize {
            let from = text.find(before).unwrap_or_else(|| panic!("{before} is not in {text}")) + before.len();
            text[from..].split('\'').next().unwrap().parse().unwrap()
        };
        let (later, earlier) = (named("a race: '"), named("orders that after '"));
        (later.min(earlier), later.max(earlier))
    };
    causes.map(pair).collect()
}
