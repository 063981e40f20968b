//! Ranks in one process. They give each other their values and the bytes of these by reference: each rank
//! makes its own result from those of all ranks, in the order of the ranks, so results are the same bits on
//! all ranks.
//!
//! The n-th collective that one rank starts meets the n-th of every other rank. The first rank that comes
//! says what it is; if another rank starts something else, the world breaks.
//!
//! The n-th letter from one rank to another belongs to the n-th receive there. If that receive is dropped,
//! its letter is discarded, and the letters of other receives stay theirs. A send ends at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::engine::{Engine, Issuing};
use super::given::Given;
use super::health::Health;
use super::op::{Op, OpFault, OpFuture, Peering, Place};
use super::report::disagreement;
use crate::error::{BoxError, Result, WorldFault};
use crate::graph::{Exchange, Made};
use crate::sync::{Mutex, lock};

/// What the ranks of a world share.
pub(crate) struct Hall {
    size: u32,
    healths: Vec<Arc<Health>>,
    state: Mutex<HallState>,
    further: Mutex<Further>,
}

/// The further worlds of the same ranks.
struct Further {
    /// The number of worlds that each rank has taken.
    taken: Vec<u64>,
    /// The worlds that not all ranks have taken, by number, each with the number of ranks that have not.
    halls: BTreeMap<u64, (Arc<Hall>, u32)>,
    /// The ranks that have left this world, and so take none.
    has_left: Vec<bool>,
}

struct HallState {
    /// The collectives that not all ranks have finished, by number.
    meetings: HashMap<u64, Meeting>,
    /// The number of collectives that each rank has started.
    started: Vec<u64>,
    mail: HashMap<Route, Mailbox>,
    has_left: Vec<bool>,
}

/// A collective that some ranks have started.
struct Meeting {
    /// The rank that came first, and what it started.
    first: (u32, Op),
    given: Vec<Option<Given>>,
    missing: u32,
    wakers: Vec<Option<Waker>>,
    /// The number of ranks that still need the values.
    open: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    from: u32,
    to: u32,
    tag: u32,
}

/// The letters from one rank to another. The n-th receive gets the n-th letter.
#[derive(Default)]
struct Mailbox {
    /// The letters that lie here, by number.
    letters: BTreeMap<u64, Op>,
    /// The receives that wait, by the numbers of their letters.
    wakers: BTreeMap<u64, Waker>,
    /// The letters that have not come, and whose receives were dropped.
    unwanted: BTreeSet<u64>,
    /// The number of letters that were sent, and of receives that were started.
    sent: u64,
    expected: u64,
}

/// The engine of one rank.
pub(crate) struct Local {
    hall: Arc<Hall>,
    rank: u32,
}

impl Hall {
    /// Returns the engine of each rank.
    pub(crate) fn open(size: u32) -> Vec<Local> {
        let hall = Self::new(size, vec![false; size as usize]);
        (0..size).map(|rank| Local { hall: hall.clone(), rank }).collect()
    }

    fn new(size: u32, has_left: Vec<bool>) -> Arc<Self> {
        let ranks = size as usize;
        let further = Further { taken: vec![0; ranks], halls: BTreeMap::new(), has_left: has_left.clone() };
        let state = HallState { meetings: HashMap::new(), started: vec![0; ranks], mail: HashMap::new(), has_left };
        let healths = (0..size).map(|_| Arc::default()).collect();
        Arc::new(Self { size, healths, state: Mutex::new(state), further: Mutex::new(further) })
    }

    /// Returns the next further world of a rank.
    fn further(&self, rank: u32) -> Arc<Self> {
        let mut further = lock(&self.further);
        let Further { taken, halls, has_left } = &mut *further;
        let number = taken[rank as usize];
        taken[rank as usize] += 1;
        let (hall, missing) = halls.entry(number).or_insert_with(|| {
            let missing = has_left.iter().filter(|has_left| !**has_left).count();
            (Self::new(self.size, has_left.clone()), missing as u32)
        });
        *missing -= 1;
        let (hall, is_over) = (hall.clone(), *missing == 0);
        let _taken = if is_over { halls.remove(&number) } else { None };
        hall
    }

    fn break_by(&self, fault: &WorldFault) {
        self.healths.iter().for_each(|health| _ = health.break_by(fault.clone()));
    }

    /// Adds a rank to its next collective. Returns the number of the collective.
    fn join(&self, rank: u32, op: &Op) -> Result<u64, WorldFault> {
        let mut state = lock(&self.state);
        let number = state.started[rank as usize];
        state.started[rank as usize] += 1;
        if let Some(left) = state.has_left.iter().position(|left| *left) {
            // A rank that had started this one before it left has given its value.
            let has_given = state.meetings.get(&number).is_some_and(|meeting| meeting.given[left].is_some());
            if !has_given {
                return Err(WorldFault::Left { rank: left as u32 });
            }
        }
        let ranks = self.size as usize;
        let meeting = state.meetings.entry(number).or_insert_with(|| Meeting {
            first: (rank, op.clone()),
            given: vec![None; ranks],
            missing: self.size,
            wakers: vec![None; ranks],
            open: self.size,
        });
        let (first, other) = &meeting.first;
        if other.name != op.name || other.spec.communication != op.spec.communication {
            return Err(disagreement(number, (*first, other.text()), (rank, op.text())));
        }
        meeting.given[rank as usize] = Some(op.given.clone());
        meeting.missing -= 1;
        let wakers = if meeting.missing == 0 { std::mem::take(&mut meeting.wakers) } else { Vec::new() };
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(number)
    }

    /// Returns the values of all ranks, once they have come.
    fn poll_all(&self, rank: u32, number: u64, waker: &Waker) -> Poll<Vec<Given>> {
        // Wakers are cloned and dropped outside of the lock: they run code of the executor.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let meeting = state.meetings.get_mut(&number).expect("this rank still needs it");
        if meeting.missing > 0 {
            let last = meeting.wakers[rank as usize].replace(waker);
            drop(state);
            drop(last);
            return Poll::Pending;
        }
        meeting.open -= 1;
        let all = meeting.given.iter().flatten().cloned().collect();
        let over = if meeting.open == 0 { state.meetings.remove(&number) } else { None };
        drop(state);
        drop(over);
        Poll::Ready(all)
    }

    /// Notes that a rank does not need the values of a collective any more.
    fn take_leave(&self, rank: u32, number: u64) {
        let mut state = lock(&self.state);
        let Some(meeting) = state.meetings.get_mut(&number) else { return };
        let waker = meeting.wakers.get_mut(rank as usize).and_then(Option::take);
        meeting.open -= 1;
        let over = if meeting.open == 0 { state.meetings.remove(&number) } else { None };
        drop(state);
        drop((waker, over));
    }

    fn send(&self, rank: u32, to: Peering, op: &Op) {
        let mut state = lock(&self.state);
        let mailbox = state.mail.entry(Route { from: rank, to: to.rank, tag: to.tag }).or_default();
        let number = mailbox.sent;
        mailbox.sent += 1;
        if !mailbox.unwanted.remove(&number) {
            mailbox.letters.insert(number, op.clone());
        }
        let waker = mailbox.wakers.remove(&number);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of the letter that the next receive on this route gets.
    fn expect(&self, route: Route) -> u64 {
        let mut state = lock(&self.state);
        let mailbox = state.mail.entry(route).or_default();
        mailbox.expected += 1;
        mailbox.expected - 1
    }

    fn poll_letter(&self, route: Route, number: u64, waker: &Waker) -> Poll<Result<Op, WorldFault>> {
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let has_left = state.has_left[route.from as usize];
        let mailbox = state.mail.entry(route).or_default();
        if let Some(letter) = mailbox.letters.remove(&number) {
            return Poll::Ready(Ok(letter));
        }
        if has_left {
            return Poll::Ready(Err(WorldFault::Left { rank: route.from }));
        }
        let last = mailbox.wakers.insert(number, waker);
        drop(state);
        drop(last);
        Poll::Pending
    }

    /// Discards the letter of a receive that was dropped.
    fn discard(&self, route: Route, number: u64) {
        let mut state = lock(&self.state);
        let mailbox = state.mail.entry(route).or_default();
        let waker = mailbox.wakers.remove(&number);
        let letter = mailbox.letters.remove(&number);
        if letter.is_none() {
            mailbox.unwanted.insert(number);
        }
        drop(state);
        drop((waker, letter));
    }

    /// Notes that a rank has left. The world breaks if another rank waits for it. The rank is not in the
    /// further worlds that it has not taken, either.
    fn leave(&self, rank: u32) {
        let untaken: Vec<Arc<Self>> = {
            let mut further = lock(&self.further);
            further.has_left[rank as usize] = true;
            let first = further.taken[rank as usize];
            further.halls.range_mut(first..).for_each(|(_, (_, missing))| *missing -= 1);
            let untaken = further.halls.range(first..).map(|(_, (hall, _))| hall.clone()).collect();
            further.halls.retain(|_, (_, missing)| *missing > 0);
            untaken
        };
        untaken.iter().for_each(|hall| hall.leave(rank));
        let mut state = lock(&self.state);
        state.has_left[rank as usize] = true;
        let waits = state.meetings.values().any(|meeting| meeting.given[rank as usize].is_none())
            || state.mail.iter().any(|(route, mailbox)| route.from == rank && !mailbox.wakers.is_empty());
        drop(state);
        if waits {
            self.break_by(&WorldFault::Left { rank });
        }
    }
}

impl Engine for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn place(&self) -> Place {
        Place { rank: self.rank, size: self.hall.size }
    }

    fn health(&self) -> &Arc<Health> {
        &self.hall.healths[self.rank as usize]
    }

    fn start(&self, op: Op, issuing: Arc<Issuing>) -> OpFuture {
        let started = match (&op.spec.communication.exchange, op.peer) {
            (Exchange::SendTo { .. }, to) => {
                to.into_iter().for_each(|to| self.hall.send(self.rank, to, &op));
                Box::pin(std::future::ready((op.spec.combine)(self.place(), &[]).map_err(OpFault::from)))
            }
            (Exchange::RecvFrom { .. }, from) => self.receive(op, from),
            _ => match self.hall.join(self.rank, &op) {
                Ok(number) => self.meet(op, number),
                Err(fault) => {
                    self.hall.break_by(&fault);
                    Box::pin(std::future::ready(Err(fault.into())))
                }
            },
        };
        issuing.complete();
        started
    }

    fn duplicate(&self) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Self { hall: self.hall.further(self.rank), rank: self.rank }))
    }

    fn break_by(&self, fault: WorldFault) {
        self.hall.break_by(&fault);
    }

    fn leave(&self) {
        self.hall.leave(self.rank);
    }
}

impl Local {
    fn meet(&self, op: Op, number: u64) -> OpFuture {
        let (hall, place) = (self.hall.clone(), self.place());
        let part = Part { hall: hall.clone(), rank: place.rank, number, is_taken: false };
        Box::pin(async move {
            let mut part = part;
            let all = poll_fn(|cx| hall.poll_all(place.rank, part.number, cx.waker())).await;
            part.is_taken = true;
            Ok(combined(place, &op, &all)?)
        })
    }

    fn receive(&self, op: Op, from: Option<Peering>) -> OpFuture {
        let (hall, place) = (self.hall.clone(), self.place());
        let expected = from.map(|from| {
            let route = Route { from: from.rank, to: self.rank, tag: from.tag };
            Expected { hall: hall.clone(), route, number: hall.expect(route), is_taken: false }
        });
        Box::pin(async move {
            let Some(mut expected) = expected else { return Ok(combined(place, &op, &[])?) };
            let letter = poll_fn(|cx| hall.poll_letter(expected.route, expected.number, cx.waker())).await;
            expected.is_taken = true;
            let letter = letter.inspect_err(|fault| hall.break_by(fault))?;
            check_type(&letter, &op)?;
            Ok(combined(place, &op, &[letter.given])?)
        })
    }
}

/// The part of a rank in a collective, until it has the values.
struct Part {
    hall: Arc<Hall>,
    rank: u32,
    number: u64,
    is_taken: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_taken {
            self.hall.take_leave(self.rank, self.number);
        }
    }
}

/// A letter that a receive expects.
struct Expected {
    hall: Arc<Hall>,
    route: Route,
    number: u64,
    is_taken: bool,
}

impl Drop for Expected {
    fn drop(&mut self) {
        if !self.is_taken {
            self.hall.discard(self.route, self.number);
        }
    }
}

/// Checks that a receive has the type of its letter: flows are not compared before they run.
fn check_type(letter: &Op, receive: &Op) -> Result<(), BoxError> {
    let (sent, received) = (&letter.spec.communication.of, &receive.spec.communication.of);
    if sent == received {
        return Ok(());
    }
    Err(format!("it receives a `{received}`, but '{}' sends a `{sent}`: let both have the same type", letter.name).into())
}

fn combined(place: Place, op: &Op, all: &[Given]) -> Result<Made, BoxError> {
    (op.spec.combine)(place, all)
}
