//! The schedules of all ranks of a shape.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::joined::Joined;
use super::pairs::check_pairs;
use super::split::{check_places, check_takes};
use super::units::Unit;
use super::waits::Starts;
use super::whole::Whole;
use crate::error::{Kind, Result};
use crate::graph::{NodeId, Shape, check_name, check_size};
use crate::plan::{Policy, Schedule};

/// The most ranks.
pub(crate) const RANKS_MAX: u32 = 1 << 16;

/// The schedules of all ranks of a shape, for planning: what each rank runs, and what it exchanges with which
/// other ranks. Made by [`Shape::schedule_ranks`].
///
/// [`Simulation::of_ranks`](crate::sim::Simulation::of_ranks) runs them in virtual time, over links with a
/// latency and a bandwidth.
///
/// `{}` writes the schedule of each rank. Ranks that share one stand together.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Ranks, Shape};
///
/// let mut shape = Shape::new();
/// let [load, scale] = ["load", "scale"].map(|name| shape.node(name, Backend::Cpu));
/// shape.read(load, 0, scale);
/// shape.nodes_mut()[load.index()].ranks = Some(Ranks::One(0));
/// shape.nodes_mut()[scale.index()].ranks = Some(Ranks::One(1));
///
/// let schedules = shape.schedule_ranks(2, &anabranch::Ranked::default())?;
/// assert_eq!(
///     schedules.to_string(),
///     "\
/// rank 0: policy ranked: 2 nodes, 1 host stream, 0 records, 0 waits
/// host 0     run load · run load to rank 1
/// exchange   load to rank 1: send to rank 1 of values
///
/// rank 1: policy ranked: 2 nodes, 1 host stream, 0 records, 0 waits
/// host 0     run load from rank 0 · run scale
/// exchange   load from rank 0: receive from rank 0 of values
/// "
/// );
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct RankSchedules {
    /// The units of the whole graph, with its transfers.
    pub(super) units: Vec<Unit>,
    pub(super) starts: Starts,
    /// The schedules that differ.
    schedules: Vec<Own>,
    /// The schedule of each rank.
    of: Vec<u32>,
}

/// A schedule of some ranks.
struct Own {
    schedule: Schedule,
    /// The node of the whole graph for each of its nodes.
    nodes: Vec<NodeId>,
    /// The places of its inner schedules, by their paths.
    inner: HashMap<String, usize>,
}

impl Shape {
    /// Compiles a schedule for each of some ranks. Nodes with a rank ([`NodeShape::ranks`]) run there, all
    /// others on all ranks; what crosses from rank to rank gets nodes that send and receive it, as in
    /// [`Graph::compile_for`](crate::Graph::compile_for). That adds one more node to a rank that exchanges
    /// nothing: it takes part in the comparison of the graphs.
    ///
    /// O(n + m) for the nodes and edges of all ranks together, but for a search of each node among those of
    /// its rank. Ranks that run only the nodes of all ranks share a schedule.
    ///
    /// # Errors
    /// As [`Shape::schedule_with`]; if there are no ranks, or more than 65,536; if the nodes or edges of all
    /// ranks together are 2³² or more; if a node reads a state, as in a loop; in addition those of
    /// [`Graph::compile_for`](crate::Graph::compile_for), except that a shape does not know which values are
    /// the same on all ranks.
    ///
    /// [`NodeShape::ranks`]: crate::graph::NodeShape::ranks
    pub fn schedule_ranks(&self, ranks: u32, policy: &dyn Policy) -> Result<RankSchedules> {
        check_count(ranks)?;
        let (shape, inner) = Arc::new(self.clone()).checked_shapes()?;
        let mut units = Unit::all(&shape, &inner);
        check_places(&units, ranks)?;
        check_pairs(&units, ranks)?;
        check_takes(self)?;
        check_reads(self)?;
        let whole = Whole::new(self, ranks, !units[0].inside.is_empty());
        if !whole.is_uniform() {
            check_size(&whole.shape)?;
            whole.shape.nodes()[self.nodes().len()..].iter().try_for_each(|added| check_name(&added.name))?;
            let (shape, inner) = whole.shape.valid_shapes()?;
            units = Unit::all(&shape, &inner);
        }
        let starts = Starts::new(&units, ranks)?;
        RankSchedules { units, starts, schedules: Vec::new(), of: Vec::new() }.filled(&whole, ranks, policy)
    }
}

/// Checks that no node reads a state: there is no loop around.
fn check_reads(shape: &Shape) -> Result<()> {
    shape.state_reads().next().map_or(Ok(()), |(state, target)| {
        let fault = format!("reads state {state} of a loop or a branch, but is in none: give the shape that has it");
        Err(Kind::Body { node: shape.name_of(target).clone(), fault }.into())
    })
}

/// Checks a number of ranks.
pub(crate) fn check_count(ranks: u32) -> Result<()> {
    if (1..=RANKS_MAX).contains(&ranks) {
        return Ok(());
    }
    let (what, got, limit) = ("the number of ranks, at least 1,".into(), ranks as usize, RANKS_MAX as usize);
    Err(Kind::Limit { what, got, limit }.into())
}

impl RankSchedules {
    fn filled(mut self, whole: &Whole, ranks: u32, policy: &dyn Policy) -> Result<Self> {
        let starts = self.starts.by_rank(ranks);
        let units: HashMap<String, usize> = self.units.iter().zip(0..).map(|(unit, at)| (unit.path(), at)).collect();
        // Ranks with the same nodes differ only in the order in which they start to communicate.
        let mut known: HashMap<Vec<&[NodeId]>, u32> = HashMap::new();
        for rank in 0..ranks {
            let key: Vec<&[NodeId]> = starts.iter().map(|unit| unit.row(rank % unit.count())).collect();
            if whole.is_plain(rank)
                && let Some(&known) = known.get(&key)
            {
                self.of.push(known);
                continue;
            }
            let (mut part, nodes) = whole.part(rank);
            let local = |node: &NodeId| nodes.binary_search(node).ok().map(|at| NodeId(at as u32));
            part.set_starts(key[0].iter().filter_map(local).collect());
            let inner = |path: &str| units.get(path).map_or_else(Vec::new, |&unit| key[unit].to_vec());
            let schedule = part.schedule_in_order(policy, inner).map_err(|error| error.within(format!("rank {rank}")))?;
            if whole.is_plain(rank) {
                known.insert(key, self.schedules.len() as u32);
            }
            self.of.push(self.schedules.len() as u32);
            let inner = (0..schedule.inner().len()).map(|inner| (schedule.inner_path(inner), inner)).collect();
            self.schedules.push(Own { schedule, nodes, inner });
        }
        Ok(self)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.of.len() as u32
    }

    /// Returns the schedule of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn of(&self, rank: u32) -> &Schedule {
        &self.own(rank).schedule
    }

    /// Returns the shape of all ranks together, with the nodes that send and receive what crosses.
    pub fn whole(&self) -> &Arc<Shape> {
        &self.units[0].shape
    }

    /// Returns the path of each graph: of the graph itself, and of those inside.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.units.iter().map(Unit::path).collect()
    }

    fn own(&self, rank: u32) -> &Own {
        &self.schedules[self.of[rank as usize] as usize]
    }

    /// Returns the schedule of an inner graph on a rank, by its path.
    pub(super) fn inner(&self, rank: u32, path: &str) -> Option<&Schedule> {
        let own = self.own(rank);
        Some(own.schedule.inner()[*own.inner.get(path)?].schedule())
    }

    /// For each node of a rank's schedule, returns the node of the whole shape.
    pub(super) fn nodes(&self, rank: u32) -> &[NodeId] {
        &self.own(rank).nodes
    }

    /// Checks the schedules of all ranks with [`Shape::verify_programs`]; and all of them together: every
    /// send has its receive, what a rank reads was sent before, and no ranks wait for each other in a cycle.
    /// The check reads the programs of the ranks. It does not use the order by which they were made.
    ///
    /// # Errors
    /// The first fault. For schedules of this library, an error is a defect of the library.
    pub fn verify(&self) -> Result<()> {
        let mut is_checked = vec![false; self.schedules.len()];
        for (rank, &schedule) in (0..).zip(&self.of) {
            if !std::mem::replace(&mut is_checked[schedule as usize], true) {
                self.of(rank).verify().map_err(|error| error.within(format!("rank {rank}")))?;
            }
        }
        check_pairs(&self.units, self.ranks())?;
        (0..self.units.len()).filter_map(|unit| Joined::of(self, unit)).try_for_each(|joined| joined.verify())
    }

    /// Writes the schedules as JSON: `[{"ranks": [0, 1], "plan": {...}}, ...]`, with the plans that
    /// [`Schedule::to_json`] writes.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> String {
        let plans = self.distinct().map(|(schedule, ranks)| {
            let plan = schedule.to_json().replace('\n', "\n    ");
            format!("  {{\n    \"ranks\": {ranks:?},\n    \"plan\": {plan}\n  }}")
        });
        format!("[\n{}\n]", plans.collect::<Vec<_>>().join(",\n"))
    }

    /// Returns each schedule that differs, with its ranks.
    fn distinct(&self) -> impl Iterator<Item = (&Schedule, Vec<u32>)> {
        let mut ranks = vec![Vec::new(); self.schedules.len()];
        (0..).zip(&self.of).for_each(|(rank, &schedule): (u32, _)| ranks[schedule as usize].push(rank));
        self.schedules.iter().map(|own| &own.schedule).zip(ranks)
    }
}

impl fmt::Display for RankSchedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (schedule, ranks)) in self.distinct().enumerate() {
            let gap = if at == 0 { "" } else { "\n" };
            write!(f, "{gap}{}: {schedule}", ranks_text(&ranks))?;
        }
        Ok(())
    }
}

/// Returns the text for some ranks: `rank 3`, `ranks 0 to 9`, `ranks 0, 2`.
fn ranks_text(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [one] => one.to_string(),
        [one, next] => format!("{one}, {next}"),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    });
    let runs: Vec<String> = runs.collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, runs.join(", "))
}

impl fmt::Debug for RankSchedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, schedules) = (self.ranks(), self.schedules.len());
        f.debug_struct("RankSchedules").field("ranks", &ranks).field("schedules", &schedules).finish_non_exhaustive()
    }
}
