//! The check that all ranks have compiled the same graph, before the first run of a plan. All ranks give a
//! hash; if the hashes differ, all ranks look for the first node that differs, so all get the same error.

use std::sync::Arc;

use bytemuck::Pod;

use super::combine;
use super::engine::Engine;
use super::op::{Op, OpFault};
use super::turns::{Turn, Turns};
use crate::error::WorldFault;
use crate::graph::Exchange;
use crate::name::Name;
use crate::ranks::Order;
use crate::sync::{Mutex, lock};

/// The nodes in whose place a rank has none.
const NO_NODE: &str = "no further node";

pub(crate) struct Agreement {
    digest: u64,
    turns: Arc<Turns>,
    /// The turn of the check, until it is made. The operations of all runs have the next one.
    check: Mutex<Option<Turn>>,
}

impl Agreement {
    pub(super) fn new(order: &Order) -> Self {
        let turns = Arc::default();
        Self { digest: order.digest(), check: Mutex::new(Some(Turn::new(&turns, 0))), turns }
    }

    /// Waits until the ranks have agreed. The first caller makes the check. The caller's run comes first in
    /// the order of the rank's work.
    pub(super) async fn reach(&self, engine: &dyn Engine, order: &Order) -> Result<(), OpFault> {
        let check = lock(&self.check).take();
        if let Some(turn) = check {
            self.ask(engine, order).await?;
            drop(turn);
        }
        self.turns.come(1).await;
        Ok(())
    }

    async fn ask(&self, engine: &dyn Engine, order: &Order) -> Result<(), OpFault> {
        let digests = gather(engine, vec![self.digest]).await?;
        if digests.iter().all(|digest| digest == &digests[0]) {
            return Ok(());
        }
        let hashes: Vec<u64> = order.nodes.iter().map(|(_, hash)| *hash).collect();
        let all: Vec<Vec<u64>> = gather(engine, hashes).await?;
        let (at, rank) = first_difference(&all);
        let name = order.nodes.get(at).map_or(NO_NODE.into(), |(name, _)| format!("'{name}'"));
        let names: Vec<Vec<u8>> = gather(engine, name.into_bytes()).await?;
        let said = |rank: usize| String::from_utf8_lossy(&names[rank]).into_owned();
        let (first, mut second) = (said(0), said(rank));
        if first == second {
            second = "a node of this name with another type, other edges, or another place".into();
        }
        let place = format!("node {at} of the graph, counted from 0");
        let fault = WorldFault::Disagree { place, first: (0, first), second: (rank as u32, second) };
        engine.break_by(fault.clone());
        Err(fault.into())
    }
}

/// Returns the first place where the list of a rank differs from that of rank 0, and the rank.
fn first_difference(all: &[Vec<u64>]) -> (usize, usize) {
    let differs = |list: &Vec<u64>| (0..).find(|&at| list.get(at) != all[0].get(at) || at >= list.len()).unwrap_or(0);
    let found = all.iter().enumerate().skip(1).filter(|(_, list)| *list != &all[0]);
    found.map(|(rank, list)| (differs(list), rank)).min().unwrap_or((0, 0))
}

/// Returns the lists of all ranks.
async fn gather<T: Pod + Send + Sync>(engine: &dyn Engine, given: Vec<T>) -> Result<Vec<Vec<T>>, OpFault> {
    let spec = combine::spec::<Vec<T>>(Exchange::AllGather, |_, all| {
        let lists: Vec<Vec<T>> = all.iter().map(|list| combine::value::<Vec<T>>(list).clone()).collect();
        Ok(Box::new(lists))
    });
    let name = Name::from("the comparison of the plans");
    let made = engine.start(Op { name, spec: Arc::new(spec), given: Arc::new(given), peer: None }, Box::new(())).await?;
    Ok(*made.downcast().expect("that is what it makes"))
}
