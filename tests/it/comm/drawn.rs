//! Graphs that are drawn at random, with the rank of each node, and what they give. Used by the tests over
//! MPI too.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anabranch::comm::{Partition, Wire, World};
use anabranch::graph::{Backend, Each, Peer, Ranks};
use anabranch::policy::{CriticalPath, Policy, ReadySet, Single};
use anabranch::scope::Max;
use anabranch::{BoxError, Executor, Graph, Outputs, Ranked, Result, Value, inputs, take};

use crate::dice::Dice;

/// A value that is counted while it lives.
#[derive(Debug)]
pub(crate) struct Counted(Vec<u64>);

static LIVE: AtomicI64 = AtomicI64::new(0);

/// Returns how many values live.
pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::SeqCst)
}

impl Counted {
    fn new(words: Vec<u64>) -> Self {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Self(words)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Wire for Counted {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        self.0.to_wire()
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        Ok(Self::new(Wire::from_wire(bytes)?))
    }
}

/// Mixes words; their order matters.
fn mix<'w>(seed: u64, all: impl Iterator<Item = &'w [u64]>) -> Vec<u64> {
    let step = |sum: u64, word: &u64| (sum.rotate_left(7) ^ word).wrapping_mul(0x0100_0000_01b3);
    let sum = all.flatten().fold(seed.wrapping_mul(0x9e37_79b9), step);
    (0..seed % 5).map(|n| sum.wrapping_add(n)).chain([sum]).collect()
}

/// The place of a value: one rank, or all.
type At = Option<u32>;

struct Made {
    value: Value<Counted>,
    words: Vec<u64>,
    at: At,
    /// Whether nodes read it, or it is an output.
    is_read: bool,
    /// Whether a loop made it, which keeps it, or others share it.
    is_kept: bool,
    is_taken: bool,
}

/// A graph with its outputs: the name of each, its rank if it has one, and its words.
pub(crate) struct Drawn {
    pub(crate) graph: Graph,
    pub(crate) outputs: Vec<(String, At, Vec<u64>)>,
    made: Vec<Made>,
    dice: Dice,
    ranks: u32,
    /// Whether nodes get ranks when they are drawn.
    places: bool,
}

const GIVEN: u64 = 5;

fn looped(g: &mut Graph, name: String, end: &Value<Counted>, times: u64) -> Value<Counted> {
    g.repeat(name, end, anabranch::graph::times(times), |b, x| {
        b.task("step", &x, |x: &Counted| Counted::new(mix(7, [&x.0[..]].into_iter())))
    })
}

/// Lets ranks exchange a value inside a loop.
fn exchanged(g: &mut Graph, name: String, end: &Value<Counted>) -> Value<Counted> {
    g.repeat(name, end, anabranch::graph::times(2), |b, x| {
        let word = b.task("word", &x, |x: &Counted| x.0[0]);
        let most = b.all_reduce("most", take(&word), Max);
        let sent = b.send_to("send", &most, Peer::ring(1));
        let next = b.recv_from::<u64>("receive", Peer::ring(-1));
        b.node(&next).after(&sent);
        b.task("step", (&next, &x), |next: &Option<u64>, x: &Counted| Counted::new(vec![next.unwrap() + 1, x.0[0]]))
    })
}

impl Drawn {
    /// Returns a graph whose nodes have drawn ranks.
    pub(crate) fn new(seed: u64, ranks: u32) -> Self {
        Self::with(seed, ranks, true)
    }

    /// Returns a graph whose nodes have the ranks of a policy.
    pub(crate) fn divided(seed: u64, ranks: u32, policy: &dyn Partition) -> Self {
        let mut drawn = Self::with(seed, ranks, false);
        drawn.graph.partition(policy, ranks).unwrap();
        let nodes = drawn.graph.shape().nodes();
        for (output, at, _) in &mut drawn.outputs {
            // Each node but the first has its number in its name.
            let number: usize = output.trim_start_matches("out ").parse().unwrap();
            let name = if number == 0 { "first".to_owned() } else { format!("node {}", number - 1) };
            let node = nodes.iter().find(|node| *node.name == *name).unwrap();
            *at = if let Some(Ranks::One(rank)) = node.ranks { Some(rank) } else { None };
        }
        drawn
    }

    fn with(seed: u64, ranks: u32, places: bool) -> Self {
        let mut graph = Graph::new();
        graph.wire::<Counted>();
        let x = graph.input::<u64>("x");
        let first = graph.task("first", &x, |x: &u64| Counted::new(vec![*x]));
        let first = Made { value: first, words: vec![GIVEN], at: None, is_read: false, is_kept: false, is_taken: false };
        let mut drawn = Self { graph, outputs: Vec::new(), made: vec![first], dice: Dice::new(seed), ranks, places };
        for n in 0..1 + drawn.dice.below(24) as u64 {
            drawn.add(n);
        }
        drawn.add_outputs();
        drawn
    }

    fn place(&mut self) -> At {
        let drawn = self.dice.below(self.ranks as usize + 1) as u32;
        (self.places && drawn < self.ranks).then_some(drawn)
    }

    fn add(&mut self, n: u64) {
        let open: Vec<usize> = (0..self.made.len()).filter(|&at| !self.made[at].is_taken).collect();
        let reads: Vec<usize> = (0..1 + self.dice.below(3)).map(|_| open[self.dice.below(open.len())]).collect();
        let last = reads[reads.len() - 1];
        let kinds = if self.ranks > 1 { 12 } else { 11 };
        let (kind, mut at) = (11 - self.dice.below(kinds), self.place());
        let is_own = !self.made[last].is_kept && reads.iter().filter(|read| **read == last).count() == 1;
        // A value that goes to other ranks stays on its own one, too. On another one, it has readers as well.
        let is_elsewhere = at.is_some() && self.made[last].at.is_some() && at != self.made[last].at;
        let takes = is_own && (is_elsewhere || (!self.made[last].is_read && (at == self.made[last].at || at.is_some())));
        let values: Vec<Value<Counted>> = reads.iter().map(|&read| self.made[read].value).collect();
        let words = mix(n, reads.iter().map(|&read| &self.made[read].words[..]));
        let (name, before, end) = (format!("node {n}"), &values[..values.len() - 1], values[values.len() - 1]);
        let g = &mut self.graph;
        let mixed = move |all: Each<'_, Counted>, end: &Counted| {
            Counted::new(mix(n, all.iter().map(|each| &each.0[..]).chain([&end.0[..]])))
        };
        let (value, words, takes) = match kind {
            2 => {
                at = None;
                let word_of = self.made[last].words[0];
                let word = g.task(format!("{name} of"), &end, |end: &Counted| end.0[0]);
                let most = format!("{name} most");
                let takes = self.dice.below(2) == 0;
                let most = if takes { g.all_reduce(most, take(&word), Max) } else { g.all_reduce(most, &word, Max) };
                let value = g.task(name, &most, |most: &u64| Counted::new(vec![*most]));
                self.made[last].is_read = true;
                self.made.push(Made { value, words: vec![word_of], at, is_read: false, is_kept: false, is_taken: false });
                return;
            }
            1 => {
                let times = n % 3;
                let value = looped(g, name, &end, times);
                let words = (0..times).fold(self.made[last].words.clone(), |words, _| mix(7, [&words[..]].into_iter()));
                (value, words, false)
            }
            0 => {
                at = None;
                let value = exchanged(g, name, &end);
                let word = self.made[last].words[0];
                (value, vec![word + 2, word + 1], false)
            }
            3..5 => {
                let work = move |all: Vec<Arc<Counted>>, end: Arc<Counted>| async move {
                    futures::future::ready(()).await;
                    Ok(Counted::new(mix(n, all.iter().map(|each| &each.0[..]).chain([&end.0[..]]))))
                };
                (g.future(name, (before, &end), work), words, false)
            }
            _ if takes => {
                let work = move |all: Each<'_, Counted>, end: Counted| mixed(all, &end);
                (g.task(name, (before, take(&end)), work), words, true)
            }
            _ => (g.task(name, (before, &end), mixed), words, false),
        };
        if let Some(rank) = at {
            g.node(&value).rank(rank);
        }
        if kind >= 5 && self.dice.below(2) == 0 {
            g.node(&value).backend(Backend::Gpu).cost_us(1.0 + self.dice.below(9) as f64);
        }
        let used: &[usize] = if kind < 2 { &[last] } else { &reads };
        for &read in used {
            self.made[read].is_read = true;
            self.made[read].is_kept |= kind < 2 || (3..5).contains(&kind);
        }
        self.made[last].is_taken |= takes;
        self.order(&value, &reads);
        self.made.push(Made { value, words, at, is_read: false, is_kept: kind < 2, is_taken: false });
    }

    /// Lets some nodes wait for one that they do not read.
    fn order(&mut self, value: &Value<Counted>, reads: &[usize]) {
        let earlier = self.dice.below(self.made.len());
        if self.dice.below(4) == 0 && !reads.contains(&earlier) {
            let earlier = self.made[earlier].value;
            self.graph.node(value).after(&earlier);
        }
    }

    fn add_outputs(&mut self) {
        for (at, made) in self.made.iter_mut().enumerate() {
            if !made.is_read || (!made.is_taken && self.dice.below(6) == 0) {
                let name = format!("out {at}");
                self.graph.output(name.clone(), &made.value);
                self.outputs.push((name, made.at, made.words.clone()));
            }
        }
    }

    /// Returns the nodes with their ranks, and what they read, for messages.
    pub(crate) fn text(&self) -> String {
        let shape = self.graph.shape();
        let reads = |node| {
            let edges = shape.edges().iter().filter(move |edge| edge.target == node);
            edges.map(|edge| format!(" {} ({:?})", shape.nodes()[edge.source.index()].name, edge.kind)).collect::<String>()
        };
        shape.ids().zip(shape.nodes()).map(|(id, node)| format!("{} {:?}:{}\n", node.name, node.ranks, reads(id))).collect()
    }

    /// Runs the graph on this rank, with a stream policy that each rank draws.
    pub(crate) async fn run(&self, world: &World, exec: &Executor, seed: u64) -> Result<Outputs> {
        let policies: [&dyn Policy; 5] =
            [&Single, &Ranked::default(), &CriticalPath::default().streams(1), &CriticalPath::default().streams(2), &ReadySet];
        let drawn = Dice::new(seed * 8 + u64::from(world.rank())).below(policies.len());
        let plan = self.graph.compile_for_with(world, policies[drawn])?;
        plan.verify()?;
        exec.run(&plan, inputs! { "x" => GIVEN }).await
    }

    /// Checks the outputs that a rank has.
    pub(crate) fn check(&self, rank: u32, mut outputs: Outputs, what: &str) {
        for (name, at, words) in &self.outputs {
            match outputs.take::<Counted>(name) {
                Ok(_) if at.is_some_and(|at| at != rank) => panic!("{what}: '{name}' is that of another rank"),
                Ok(output) => assert_eq!(output.0, *words, "{what}: '{name}'"),
                Err(error) => {
                    let at = at.filter(|at| *at != rank).unwrap_or_else(|| panic!("{what}: {error}"));
                    assert!(error.to_string().contains(&format!("made on rank {at}")), "{what}: {error}");
                }
            }
        }
    }
}
