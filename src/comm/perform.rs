//! The execution of one operation: it waits for its turn, is started, and waits for its end or that of the
//! world.
//!
//! ```text
//!  1  the run's place among the work of the rank     earlier work has started all of its communication
//!  2  the agreement of the ranks on the plan         before the first run of a plan
//!  3  the operation's turn in its graph              collectives only
//!  4  the comparison of the operation (`steps`)      collectives only
//!  5  the engine's end
//! ```

use std::sync::Arc;

use super::op::{Op, OpFault, Peering, Spec};
use super::run_comm::RunComm;
use super::turns::Turn;
use super::world::{Entry, Member};
use crate::error::{BoxError, Error, Kind, WorldFault};
use crate::graph::{Made, Shared};
use crate::name::Name;
use crate::ranks::Position;

/// Performs an operation of a run.
pub(super) async fn perform(run: Arc<RunComm>, name: Name, spec: Arc<Spec>, given: Shared) -> Result<Made, BoxError> {
    let entry = run.entry().ok_or("another node of its run has failed")?;
    let (turn, peer) = match run.order.positions[&name] {
        Position::Turn { unit, number, of } => (Some(run.turn(unit, number, of)), None),
        Position::Message(peer) => (None, peer.map(|(rank, tag)| Peering { rank, tag })),
    };
    let (member, op) = (entry.member.clone(), Op::new(name, spec, given, peer));
    let steps = async {
        entry.turn.come().await;
        run.agreement.reach(&member, &run.order).await?;
        if let Some(turn) = &turn {
            turn.come().await;
        }
        // Work behind this run does not wait until the operation has ended.
        drop(entry);
        check_whole(&member)?;
        member.perform(op, Box::new(Issue { turn, run })).await
    };
    judged(&member, member.engine.health().watch(steps).await)
}

/// Takes part in the agreement of the ranks on a plan, on a rank that may have no operation in it.
pub(super) async fn agree(run: Arc<RunComm>) -> Result<Made, BoxError> {
    let entry = run.entry().ok_or("another node of its run has failed")?;
    let member = entry.member.clone();
    let steps = async {
        entry.turn.come().await;
        run.agreement.reach(&member, &run.order).await?;
        Ok(Box::new(()) as Made)
    };
    judged(&member, member.engine.health().watch(steps).await)
}

/// Performs an operation of a flow, which has a place of its own in the order of the rank's work.
pub(super) async fn perform_alone(mut unstarted: Unstarted, op: Op) -> Result<Made, BoxError> {
    let member = unstarted.entry().member.clone();
    let steps = async {
        unstarted.entry().turn.come().await;
        check_whole(&member)?;
        let turn = unstarted.start();
        member.perform(op, Box::new(turn)).await
    };
    judged(&member, member.engine.health().watch(steps).await)
}

/// Checks that the world is whole before an operation is started. The operation could meet one that a failed
/// run has left.
fn check_whole(member: &Member) -> Result<(), OpFault> {
    member.engine.health().fault().map_or(Ok(()), |fault| Err(fault.into()))
}

fn judged(member: &Member, ended: Result<Result<Made, OpFault>, WorldFault>) -> Result<Made, BoxError> {
    let fault = match ended {
        Ok(Ok(made)) => return Ok(made),
        Ok(Err(OpFault::Value(error))) => return Err(error),
        Ok(Err(OpFault::World(fault))) => {
            member.engine.break_by(fault.clone());
            fault
        }
        Err(fault) => fault,
    };
    // The first fault is the cause of the others.
    let fault = member.engine.health().fault().unwrap_or(fault);
    let error: Error = Kind::World(fault).into();
    Err(error.into())
}

/// An operation of a run that is being started. Its drop lets the next ones start.
struct Issue {
    turn: Option<Turn>,
    run: Arc<RunComm>,
}

impl Drop for Issue {
    fn drop(&mut self) {
        drop(self.turn.take());
        self.run.note_started();
    }
}

/// The place of a flow's operation that is not started. Its drop breaks the world: other ranks may wait.
pub(super) struct Unstarted {
    entry: Option<Entry>,
    name: Name,
}

impl Unstarted {
    pub(super) fn new(entry: Entry, name: Name) -> Self {
        Self { entry: Some(entry), name }
    }

    pub(super) fn entry(&self) -> &Entry {
        self.entry.as_ref().expect("it is started once")
    }

    pub(super) fn start(&mut self) -> Turn {
        self.entry.take().expect("it is started once").turn
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            entry.abandon(format!("'{}' was not started: its flow was dropped, or what it reads failed", self.name));
        }
    }
}
