//! The ways from a work to a phasing.

use std::sync::Arc;

use super::PHASE_MAX;
use super::auto::{Found, Problem, search};
use super::check::{Checked, check, check_time};
use super::cuts::{NAME, cut};
use super::exact::Budget;
use super::iteration::{Iteration, Lanes};
use super::phasing::{Method, Phasing, us};
use super::solve::{ANY, STEPS_MAX, perturbed, solve};
use super::units::Units;
use super::work::Work;
use crate::error::{Kind, Result};

impl Work {
    /// Plans the phases that are fixed. A node without one is unpipelined if another node has one. If no node
    /// has one, all are in phase 1.
    ///
    /// # Errors
    ///
    /// Fails if the work is not valid, if an edge leads to an earlier phase, or if feedback leads to a later
    /// one.
    pub fn written(&self) -> Result<Phasing> {
        let checked = check(self)?;
        let none = u32::from(checked.fixed.iter().all(|phase| phase.unwrap_or(0) == 0));
        let phases = checked.fixed.iter().map(|phase| phase.unwrap_or(none)).collect();
        Phasing::of(checked, phases)
    }

    /// Plans a phase for each node, in topological order; nodes that are kept [together](Work::together)
    /// share one. Unpipelined nodes stay so, and other fixed phases do not count.
    ///
    /// # Errors
    ///
    /// Fails if the work is not valid, or needs more than 1024 phases.
    pub fn each(&self) -> Result<Phasing> {
        let checked = check(self)?;
        let units = Units::new(&checked);
        let got = units.nodes.len();
        if got > PHASE_MAX as usize {
            return Err(Kind::Limit { what: "the number of phases".into(), got, limit: PHASE_MAX as usize }.into());
        }
        let phases: Vec<u32> = (1..=got as u32).collect();
        let phases = units.by_node(&checked, &phases);
        Phasing::of(checked, phases)
    }

    /// Plans at most `depth` phases, so that the period is the shortest possible; of several such splits, it
    /// takes that with the smallest latency, then with the fewest phases, then with the fewest bytes in
    /// flight.
    ///
    /// The search is exact for small works. [`Phasing::method`] says whether it was.
    ///
    /// # Errors
    ///
    /// Fails if the work is not valid, if `depth` is not from 1 to 1024, or if the fixed phases leave none
    /// for a node.
    pub fn auto(&self, depth: u32) -> Result<Phasing> {
        Phasing::auto(check(self)?, depth)
    }
}

impl Phasing {
    /// Returns the phasing of phases that are given, by node.
    fn of(checked: Arc<Checked>, phases: Vec<u32>) -> Result<Self> {
        check_phases(&checked, &phases)?;
        let lanes = Lanes::new(&checked);
        let iteration = Iteration::new(&checked, phases);
        let mut budget = Budget::new(STEPS_MAX);
        let mut timetable = solve(&iteration, &lanes, ANY, &mut budget).expect("no schedule is above the limit");
        if budget.is_exceeded {
            timetable = perturbed(&iteration, &lanes, timetable);
        }
        let is_exact = !budget.is_exceeded || iteration.is_best(&timetable);
        let phases = iteration.phases;
        Ok(Self::new(checked, phases, timetable, Method::Given, is_exact))
    }

    /// Returns the best phasing of at most `depth` phases.
    fn auto(checked: Arc<Checked>, depth: u32) -> Result<Self> {
        if !(1..=PHASE_MAX).contains(&depth) {
            return Err(Kind::Setting { what: "the depth", must: "from 1 to 1024", got: depth as usize }.into());
        }
        let units = Units::within(&checked, depth)?;
        // More phases than units are of no use.
        let depth = if units.is_free { depth.min(units.nodes.len().max(1) as u32) } else { depth };
        check_depth(&checked, depth)?;
        let problem = Problem { checked: &checked, units: &units, lanes: Lanes::new(&checked), depth };
        let (found, is_best) = search(&problem, cut(&problem));
        let method = if is_best { Method::Exact } else { Method::Heuristic(NAME) };
        let Found { phases, timetable, is_exact, .. } = found;
        check_phases(&checked, &phases)?;
        Ok(Self::new(checked, phases, timetable, method, is_exact))
    }
}

/// Checks that every edge leads to the same phase or a later one, and feedback to the same or an earlier one.
fn check_phases(checked: &Checked, phases: &[u32]) -> Result<()> {
    for edge in &checked.edges {
        let (from, to) = (phases[edge.source], phases[edge.target]);
        let (source_node, target) = (checked.name(edge.source), checked.name(edge.target));
        if edge.is_feedback && to.max(1) > from.max(1) {
            return Err(Kind::LaterPhase { source_node, from: from.max(1), target, to: to.max(1) }.into());
        }
        if !edge.is_feedback && from > to && to > 0 {
            return Err(Kind::PhaseBack { source_node, target, first: from, second: to, is_data: true }.into());
        }
    }
    check_depth(checked, phases.iter().copied().max().unwrap_or(1))
}

fn check_depth(checked: &Checked, depth: u32) -> Result<()> {
    let sum = us(checked.loads().into_iter().sum());
    check_time("the sum of all costs, times the number of phases,", sum * f64::from(depth))
}
