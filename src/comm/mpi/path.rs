//! The one path on which calls of MPI are made, behind a lock. A poll or a drop only tries the lock: if
//! another thread holds it, that thread also carries out what the poll has left in the queue.
//!
//! ```text
//!  poll                                   the thread that holds the lock
//!  1  leaves a command in the queue       1  takes the commands, tests the requests
//!  2  tries the lock                      2  gives the lock back
//!  3  fails: it is carried out by (2)     3  looks into the queue again; not empty: tries the lock
//! ```
//! No command is left: if the try in step 2 fails, the lock is given back after it, and the look after that
//! sees the command.
//!
//! ```text
//!  the path  event                                   next
//!  open      the process comes to its end            ending   no operation is started; requests in flight go on
//!  ending    nothing is in flight                    closed   no command is begun: it fails
//!  closed    nothing is in flight on any rank        closed   MPI is finalised
//! ```
//! A rank that has told the others that nothing of it is in flight is closed, so nothing is when MPI ends.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use smallvec::SmallVec;

use super::calls::{COMMS, Called, Calls, CommsAt, Failed, Handle, Memory};
use crate::comm::given::Given;
use crate::comm::spares::{InUse, Spares};
use crate::comm::wire::{Landing, SPARE_MIN};
use crate::error::{BoxError, shielded};
use crate::graph::Made;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// What a request has in memory until it has completed.
pub(super) struct Buffers {
    /// The value that is sent, if there is one, and its count.
    pub(super) given: Option<Given>,
    _count: Option<InUse>,
    /// The memory that is received, if there is some.
    pub(super) landing: Option<Box<dyn Landing>>,
    /// The number of bytes that are received or sent.
    bytes: usize,
    /// Other memory that the request uses.
    others: Box<dyn Any + Send>,
    /// The communicator that it uses.
    comm: Option<Arc<dyn OfWorld>>,
}

/// A communicator that a request keeps.
pub(super) trait OfWorld: Send + Sync {
    fn is_broken(&self) -> bool;
}

impl Buffers {
    pub(super) fn none() -> Self {
        Self { given: None, _count: None, landing: None, bytes: 0, others: Box::new(()), comm: None }
    }

    pub(super) fn of(others: impl Send + 'static, bytes: usize) -> Self {
        Self { others: Box::new(others), bytes, ..Self::none() }
    }

    pub(super) fn landing(mut landing: Box<dyn Landing>, others: impl Send + 'static) -> Self {
        let (_, bytes) = landing.memory();
        Self { landing: Some(landing), ..Self::of(others, bytes) }
    }

    /// Adds the value that is sent.
    pub(super) fn giving(self, given: Given, spares: &Arc<Spares>) -> Self {
        let bytes = given.bytes().len();
        let count = (bytes >= SPARE_MIN).then(|| spares.count(bytes));
        Self { given: Some(given), _count: count, ..self }
    }

    /// Adds the communicator.
    pub(super) fn on(self, comm: Arc<dyn OfWorld>) -> Self {
        Self { comm: Some(comm), ..self }
    }

    /// Returns the value that was received, once the request has completed. All ranks have agreed on it if it
    /// is that of a collective.
    pub(super) fn value(self) -> Result<Made, BoxError> {
        let landing = self.landing.expect("the request receives a value");
        // SAFETY: a completed request has written all bytes: a message has the size that its landing was made
        // for. So has a collective: all ranks have begun the same, and have agreed on its size, or exchanged
        // sizes before.
        unsafe { landing.value() }
    }

    /// Returns the other memory, once the request has completed.
    pub(super) fn others<T: 'static>(self) -> T {
        *self.others.downcast().expect("the request was given memory of this type")
    }
}

/// Makes the calls that start a request.
pub(super) type Start<H> = Box<dyn FnOnce(&Calls<H>, &mut Buffers) -> Called<Step<H>> + Send>;

/// Makes memory for a value of so many bytes.
pub(super) type LandingOf = Box<dyn Fn(usize) -> Box<dyn Landing> + Send>;

/// How far a command is.
pub(super) enum Step<H> {
    Request(H),
    /// A receive, whose message has not come.
    Probe(Probe<H>),
    /// A receive, whose message has come, and a send that is to complete, too.
    Received {
        receive: H,
        send: H,
    },
    /// The communicators of a world, which are made one after the other: MPICH was seen to make no progress
    /// with several at once. `request` makes the next one.
    Copies {
        into: CommsAt<H>,
        made: usize,
        request: Option<H>,
    },
}

pub(super) struct Probe<H> {
    pub(super) from: u32,
    pub(super) tag: c_int,
    pub(super) comm: H,
    pub(super) landing: LandingOf,
    /// Set when the message has come.
    pub(super) is_matched: Option<Arc<AtomicBool>>,
    /// A send that is to complete, too.
    pub(super) beside: Option<H>,
}

pub(super) struct Command<H> {
    pub(super) start: Start<H>,
    pub(super) buffers: Buffers,
    pub(super) done: Arc<Done>,
}

/// The end of a command, for the future that waits for it.
pub(super) type Done = crate::comm::done::Done<Called<Buffers>>;

/// The end of a command. Its future gets it outside of the path's lock: under it, no value is dropped and no
/// future is woken.
struct End {
    done: Arc<Done>,
    end: Called<Buffers>,
    /// The memory of a command that was not started.
    _unused: Option<Buffers>,
}

impl End {
    /// Hands the end to the future, and wakes it. If the future is gone, this drops values of the user: one
    /// that panics harms no other request.
    fn tell(self) {
        let _ = shielded(|| {
            let Self { done, end, _unused } = self;
            done.set(end);
        });
    }
}

/// Most often one: a task polls the request for which it waits.
type Ends = SmallVec<[End; 1]>;

pub(super) struct Path<H> {
    commands: Mutex<VecDeque<Command<H>>>,
    state: Mutex<State<H>>,
    /// The communicator of all processes.
    pub(super) world: H,
    /// Whether the process has come to its end.
    is_ending: AtomicBool,
}

struct State<H> {
    calls: Calls<H>,
    flying: Vec<Flying<H>>,
    /// The commands that are carried out now. It keeps its memory for the next ones.
    taken: VecDeque<Command<H>>,
    /// The number of steps that requests have made.
    steps: u64,
    /// Whether nothing is in flight any more, and no call may be made.
    is_closed: bool,
    /// Why communicators were not made. Ranks would make further ones in different numbers.
    copy_fault: Option<String>,
}

/// A command that has been started.
struct Flying<H> {
    step: Step<H>,
    buffers: Buffers,
    done: Arc<Done>,
}

/// The state after a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Remaining {
    Nothing,
    /// Requests: the number of steps that all requests have made, whichever thread has driven them, the bytes
    /// that are received, and whether futures have left some.
    Requests {
        steps: u64,
        bytes: usize,
        are_left: bool,
    },
}

impl<H: Handle> Path<H> {
    pub(super) fn new(calls: Calls<H>) -> Self {
        let world = calls.constants.world;
        let state = State { calls, flying: Vec::new(), taken: VecDeque::new(), steps: 0, is_closed: false, copy_fault: None };
        Self { commands: Mutex::default(), state: Mutex::new(state), world, is_ending: AtomicBool::new(false) }
    }

    /// Makes other calls, in the place of commands.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Calls<H>) -> Called<R>) -> Called<R> {
        let state = lock(&self.state);
        if state.is_closed { Err(ended()) } else { act(&state.calls) }
    }

    /// Notes that the process has come to its end.
    pub(super) fn note_end(&self) {
        // ORDERING: Relaxed: it tells nothing else. An operation that has looked before is in flight, or
        // fails when the path is closed.
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Checks that the process has not come to its end, before an operation is started.
    pub(super) fn check_open(&self) -> Called<()> {
        // ORDERING: Relaxed: as in `note_end`.
        if self.is_ending.load(Ordering::Relaxed) { Err(ended()) } else { Ok(()) }
    }

    /// Gives up the receives whose messages have not come. If nothing else is in flight, the path is closed.
    /// Returns whether it is.
    pub(super) fn close_if_idle(&self) -> bool {
        self.drive();
        let mut state = lock(&self.state);
        let waits = |flying: &mut Flying<H>| matches!(flying.step, Step::Probe(Probe { beside: None, .. }));
        let given_up: Vec<Flying<H>> = state.flying.extract_if(.., waits).collect();
        state.is_closed = state.flying.is_empty();
        let is_closed = state.is_closed;
        drop(state);
        given_up.into_iter().for_each(|flying| flying.done.set(Err(ended())));
        is_closed
    }

    /// Ends MPI, if the path is closed.
    pub(super) fn end(&self) {
        let state = lock(&self.state);
        if state.is_closed {
            let _ = state.calls.finalize();
        }
    }

    pub(super) fn add(&self, command: Command<H>) {
        lock(&self.commands).push_back(command);
    }

    /// Carries out commands and tests requests, if no other thread does.
    pub(super) fn try_drive(&self) {
        loop {
            let Ok(state) = self.state.try_lock() else { return };
            self.drive_locked(state, |_| ());
            if lock(&self.commands).is_empty() {
                return;
            }
        }
    }

    /// Returns the state as the last drive has left it.
    pub(super) fn remaining(&self) -> Remaining {
        lock(&self.state).remaining()
    }

    /// Carries out commands and tests requests.
    pub(super) fn drive(&self) -> Remaining {
        loop {
            let remaining = self.drive_locked(lock(&self.state), State::remaining);
            if lock(&self.commands).is_empty() {
                return remaining;
            }
        }
    }

    /// Carries out commands and tests requests. Returns what `look` makes of the state behind that.
    fn drive_locked<R>(&self, mut state: MutexGuard<'_, State<H>>, look: impl FnOnce(&State<H>) -> R) -> R {
        let mut ends = Ends::new();
        state.taken.append(&mut lock(&self.commands));
        while let Some(command) = state.taken.pop_front() {
            state.begin(command, &mut ends);
        }
        state.test(&mut ends);
        let seen = look(&state);
        drop(state);
        ends.into_iter().for_each(End::tell);
        seen
    }
}

impl<H: Handle> State<H> {
    fn begin(&mut self, command: Command<H>, ends: &mut Ends) {
        let Command { start, mut buffers, done } = command;
        self.steps += 1;
        let started = if self.is_closed { Err(ended()) } else { start(&self.calls, &mut buffers) };
        match started {
            Ok(step) => self.flying.push(Flying { step, buffers, done }),
            Err(failed) => ends.push(End { done, end: Err(failed), _unused: Some(buffers) }),
        }
    }

    /// Returns whether a receive stands behind another one for the same messages, whose first is not for it,
    /// or whether the communicators of a world stand behind those of another one.
    fn waits_for_earlier(&self, at: usize) -> bool {
        if !matches!(self.flying[at].step, Step::Probe(_) | Step::Copies { .. }) {
            return false;
        }
        let is_behind = |earlier: &Step<H>| match (earlier, &self.flying[at].step) {
            (Step::Probe(earlier), Step::Probe(own)) => {
                (earlier.from, earlier.tag) == (own.from, own.tag) && earlier.comm == own.comm
            }
            (Step::Copies { .. }, Step::Copies { .. }) => true,
            _ => false,
        };
        self.flying[..at].iter().any(|earlier| is_behind(&earlier.step))
    }

    fn remaining(&self) -> Remaining {
        if self.flying.is_empty() {
            return Remaining::Nothing;
        }
        Remaining::Requests {
            steps: self.steps,
            bytes: self.flying.iter().map(|flying| flying.buffers.bytes).sum(),
            are_left: self.flying.iter().any(|flying| flying.done.is_left()),
        }
    }

    /// Tests all requests.
    fn test(&mut self, ends: &mut Ends) {
        let mut at = 0;
        while at < self.flying.len() {
            if self.flying[at].is_given_up() {
                self.steps += 1;
                let Flying { buffers, done, .. } = self.flying.remove(at);
                ends.push(End { done, end: Err(given_up()), _unused: Some(buffers) });
                continue;
            }
            if self.waits_for_earlier(at) {
                at += 1;
                continue;
            }
            let advanced = match (&self.flying[at].step, &self.copy_fault) {
                (Step::Copies { .. }, Some(fault)) => Err(not_copied(fault)),
                _ => self.flying[at].advance(&self.calls),
            };
            match advanced {
                Ok(Advance::None) => at += 1,
                Ok(Advance::Step) => self.steps += 1,
                Ok(Advance::Complete) => {
                    self.steps += 1;
                    let Flying { buffers, done, .. } = self.flying.remove(at);
                    ends.push(End { done, end: Ok(buffers), _unused: None });
                }
                Err(failed) => {
                    self.steps += 1;
                    let Flying { step, buffers, done } = self.flying.remove(at);
                    if matches!(step, Step::Copies { .. }) {
                        self.copy_fault.get_or_insert_with(|| failed.to_string());
                    }
                    // The transport may still use the memory.
                    std::mem::forget(buffers);
                    ends.push(End { done, end: Err(failed), _unused: None });
                }
            }
        }
    }
}

/// The failure of calls at the end of the process.
fn ended() -> Failed {
    Failed { call: "the operation", message: "this process has come to its end, and MPI with it".into() }
}

/// The failure of a receive of a broken world.
fn given_up() -> Failed {
    Failed { call: "the receive", message: "its world is broken, and its message has not come".into() }
}

/// The failure of the communicators of a world behind those that have failed.
fn not_copied(why: &str) -> Failed {
    let message = format!("those of an earlier world were not made ({why}), so ranks could make them in different orders");
    Failed { call: "the start of its communicators", message }
}

enum Advance {
    None,
    Step,
    Complete,
}

impl<H: Handle> Flying<H> {
    /// Returns whether it is a receive of a broken world, for which no future waits. Its message would hardly
    /// come any more, and the transport has no memory of it.
    fn is_given_up(&self) -> bool {
        let waits = matches!(self.step, Step::Probe(Probe { beside: None, .. })) && self.done.is_left();
        waits && self.buffers.comm.as_ref().is_some_and(|comm| comm.is_broken())
    }

    fn advance(&mut self, calls: &Calls<H>) -> Result<Advance, Failed> {
        match &mut self.step {
            Step::Request(request) => Ok(if calls.test(request)? { Advance::Complete } else { Advance::None }),
            Step::Received { receive, send } => {
                if !calls.test(receive)? {
                    return Ok(Advance::None);
                }
                self.step = Step::Request(*send);
                Ok(Advance::Step)
            }
            Step::Probe(Probe { from, tag, comm, landing, is_matched, beside }) => {
                let Some((message, bytes)) = calls.probe(*from, *tag, *comm)? else { return Ok(Advance::None) };
                if let Some(is_matched) = is_matched {
                    // ORDERING: Relaxed: it tells nothing else.
                    is_matched.store(true, Ordering::Relaxed);
                }
                self.buffers.bytes = bytes;
                let into = Memory::to_receive(&mut **self.buffers.landing.insert(landing(bytes)));
                // SAFETY: the landing stays in the buffers until the request has completed.
                let receive = unsafe { calls.receive(message, into) }?;
                self.step = beside.map_or(Step::Request(receive), |send| Step::Received { receive, send });
                Ok(Advance::Step)
            }
            Step::Copies { into, made, request } => {
                if let Some(pending) = request {
                    if !calls.test(pending)? {
                        return Ok(Advance::None);
                    }
                    (*made, *request) = (*made + 1, None);
                    if *made == COMMS {
                        return Ok(Advance::Complete);
                    }
                }
                // SAFETY: the buffers keep the memory until the last request has completed.
                *request = Some(unsafe { calls.duplicate(*into, *made) }?);
                Ok(Advance::Step)
            }
        }
    }
}
