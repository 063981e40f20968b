//! The check that all ranks have compiled the same graph, before the first run of a plan: a collective that
//! is compared as all others are. If the graphs differ, all ranks look for the first node that differs, so
//! all get the same error.

use std::sync::Arc;

use bytemuck::Pod;

use super::combine;
use super::engine::{Answer, CheckFuture, Checks};
use super::op::{Op, OpFault};
use super::report::Report;
use super::steps::Compared;
use super::turns::{Turn, Turns};
use super::world::Member;
use crate::graph::Exchange;
use crate::name::Name;
use crate::ranks::Order;
use crate::sync::{Mutex, lock};

pub(crate) struct Agreement {
    turns: Arc<Turns>,
    /// The turn of the check, until it is made. The operations of all runs have the next one.
    check: Mutex<Option<Turn>>,
}

impl Agreement {
    pub(super) fn new() -> Self {
        let turns = Arc::default();
        Self { check: Mutex::new(Some(Turn::new(&turns, 0))), turns }
    }

    /// Waits until the ranks have agreed. The first caller makes the check. The caller's run comes first in
    /// the order of the rank's work.
    pub(super) async fn reach(&self, member: &Arc<Member>, order: &Arc<Order>) -> Result<(), OpFault> {
        let check = lock(&self.check).take();
        if let Some(turn) = check {
            let checks = member.engine.checks().unwrap_or_else(|| Arc::new(Plain(member.clone())));
            let agreed = Compared::begin(member, checks, Report::of_plan(order), &[]).agreed().await;
            if let Err(OpFault::World(fault)) = &agreed {
                member.broken_by(fault).await;
            }
            agreed?;
            drop(turn);
        }
        self.turns.come(1).await;
        Ok(())
    }
}

/// Comparisons by the operations of an engine that compares these itself.
struct Plain(Arc<Member>);

impl Plain {
    fn gather_lists<T: Pod + Send + Sync>(&self, given: Vec<T>) -> CheckFuture<Vec<Vec<T>>> {
        let spec = combine::spec::<Vec<T>>(Exchange::AllGather, |_, all| {
            let lists: Vec<Vec<T>> = all.iter().map(|list| combine::value::<Vec<T>>(list).clone()).collect();
            Ok(Box::new(lists))
        });
        let name = Name::from("the comparison of the plans");
        let (engine, mut op) = (&self.0.engine, Op::new(name, Arc::new(spec), Arc::new(given), None));
        let made = op.encode(engine.place()).map(|()| engine.start(op, Arc::default()));
        Box::pin(async move { Ok(*made?.await?.downcast().expect("that is what it makes")) })
    }
}

impl Checks for Plain {
    fn compare(&self, number: u64, _: &[u8]) -> CheckFuture<Answer> {
        let numbers = self.gather_lists(vec![number]);
        Box::pin(async move {
            let is_same = numbers.await?.iter().flatten().all(|other| *other == number);
            Ok(if is_same { Answer::Same(Vec::new()) } else { Answer::Different })
        })
    }

    fn gather(&self, bytes: Vec<u8>) -> CheckFuture<Vec<Vec<u8>>> {
        self.gather_lists(bytes)
    }
}
