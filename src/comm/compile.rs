//! A graph for a world: the checks over all ranks, and a plan whose runs communicate.

use std::sync::Arc;

use super::agreement::Agreement;
use super::run_comm::RunComm;
use super::transfers::Spread;
use super::world::World;
use crate::Plan;
use crate::error::{Kind, Result};
use crate::graph::{Graph, Ranks, SharedContext};
use crate::plan::{Context, OfRank, Policy};
use crate::policy::Ranked;
use crate::ranks::{Order, Starts, Unit, check_pairs, check_places, check_same};

impl Graph {
    /// Compiles the graph for this rank of a world, with the default stream policy, [`Ranked`]. Every rank
    /// builds the same graph and compiles it.
    ///
    /// Before the first run of the plan, the ranks compare their graphs. If these differ, the run fails on
    /// all ranks, and the error names the first node that differs.
    ///
    /// # Errors
    /// As [`Graph::compile_with`](crate::Graph::compile_with), on all ranks; in addition:
    /// - a receive without a send, a send without a receive, peers that do not match;
    /// - a rank, a peer or a root that the world does not have;
    /// - ranks that would wait for each other in a cycle;
    /// - a loop or a branch that communicates inside, and whose decision may differ between the ranks;
    /// - a rank for a node in which all ranks take part, or for one inside of a loop or a branch;
    /// - a value that goes to another rank, and whose type does not say how ([`Graph::wire`]).
    pub fn compile_for(&self, world: &World) -> Result<Plan> {
        self.compile_for_with(world, &Ranked::default())
    }

    /// Compiles the graph for this rank of a world, with a stream policy; see [`Graph::compile_for`].
    ///
    /// # Errors
    /// As [`Graph::compile_for`].
    pub fn compile_for_with(&self, world: &World, policy: &dyn Policy) -> Result<Plan> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if self.is_inner() {
            return Err(Kind::IsInner.into());
        }
        self.check_unpiped()?;
        let place = world.place();
        let (shape, inner) = self.checked_shapes()?;
        let mut units = Unit::all(&shape, &inner);
        check_places(&units, place.size)?;
        check_pairs(&units, place.size)?;
        let is_placed = self.shape().nodes().iter().any(|node| Ranks::one(node.ranks).is_some());
        let spread = if is_placed { Some(Spread::new(self, &units[0], place)?) } else { None };
        let whole = spread.as_ref().map_or(self, |spread| &spread.graph);
        if spread.is_some() {
            // A mistake on one rank is an error on all.
            let (shape, inner) = whole.checked_shapes()?;
            units = Unit::all(&shape, &inner);
        }
        check_same(whole)?;
        let starts = Starts::new(&units, place.size)?.of(place.rank, &units);
        let context = whole.context.map(|slot| {
            let order = Arc::new(Order::new(whole, &units, place.rank, place.size));
            let (agreement, world) = (Arc::new(Agreement::new()), world.clone());
            let make = move || -> SharedContext { Arc::new(RunComm::new(world.reserve(), order.clone(), agreement.clone())) };
            Context { slot, make: Arc::new(make) }
        });
        let Some(spread) = spread else {
            return self.compiled(policy, false, OfRank { context, starts, ..OfRank::default() });
        };
        let part = spread.part();
        let elsewhere = Spread::elsewhere(self, &part);
        part.compiled(policy, false, OfRank { context, elsewhere, starts })
    }
}
