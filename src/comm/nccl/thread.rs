//! The thread of a communicator: it makes all calls of NCCL, and learns what has ended.
//!
//! ```text
//!  an operation  event                                     next
//!  pending       the one before it is enqueued             issuing    its memory is there, NCCL is called
//!  issuing       NCCL says that it is enqueued             in flight  an event is recorded behind it
//!  in flight     the event has passed                      done       its future gets the buffer
//!  any of these  the world is broken, or NCCL has failed   aborted    its future gets the fault; its memory
//!                                                                     stays until the stream has passed it
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::communicator::{Communicator, Ends};
use super::library::{Library, UniqueId};
use super::on_device::{NewMemory, Wanted};
use crate::comm::done::{AWAKE, Done, pause};
use crate::comm::health::Health;
use crate::comm::op::{Op, OpFault, Place};
use crate::device::cuda::{Mark, Transport};
use crate::error::{BoxError, Error, Kind, Result, WorldFault};
use crate::graph::Made;
use crate::sync::{Mutex, OnceLock, Thread, current, lock, park, spawn};

/// The longest time that a communicator gets to end in order. Then it is aborted.
const FINALIZE_MAX: Duration = Duration::from_secs(10);

/// The thread, as the world of its rank has it. Its drop ends the thread, once its work has ended.
#[derive(Default)]
pub(in crate::comm) struct Nccl(Arc<Commands>);

#[derive(Default)]
struct Commands {
    queue: Mutex<VecDeque<Command>>,
    thread: OnceLock<Thread>,
}

enum Command {
    Connect(UniqueId, Arc<Done<Result<(), String>>>),
    Start(Task),
    End,
}

struct Task {
    op: Op,
    wanted: Wanted,
    done: Arc<Done<Result<Made, OpFault>>>,
}

/// What the thread has found: rank 0 makes the id by which the ranks find each other.
pub(super) type Opened = Result<Option<UniqueId>, String>;

impl Nccl {
    /// Starts a thread, which opens the library and the GPU.
    pub(super) fn open(ordinal: u32, rank: Rank) -> Result<(Self, Arc<Done<Opened>>)> {
        let (nccl, opened) = (Self::default(), Arc::new(Done::default()));
        let (own, to) = (nccl.0.clone(), opened.clone());
        spawn("anabranch-nccl".into(), move || live(own, ordinal, rank, &to))
            .map_err(|error| -> Error { Error::with_source(Kind::Thread, error.into()) })?;
        Ok((nccl, opened))
    }

    /// Connects the ranks.
    pub(super) fn connect(&self, id: UniqueId) -> Arc<Done<Result<(), String>>> {
        let done = Arc::new(Done::default());
        self.push(Command::Connect(id, done.clone()));
        done
    }

    /// Hands an operation over. The thread issues operations in this order.
    pub(super) fn start(&self, op: Op, wanted: Wanted) -> Arc<Done<Result<Made, OpFault>>> {
        let done = Arc::new(Done::default());
        self.push(Command::Start(Task { op, wanted, done: done.clone() }));
        done
    }

    fn push(&self, command: Command) {
        lock(&self.0.queue).push_back(command);
        // A thread that is not there yet looks into the queue before it parks.
        self.0.thread.get().into_iter().for_each(Thread::unpark);
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.push(Command::End);
    }
}

/// The rank for which the thread works.
pub(super) struct Rank {
    pub(super) place: Place,
    pub(super) health: Arc<Health>,
    /// Breaks the world, soon.
    pub(super) break_by: Box<dyn Fn(WorldFault) + Send>,
}

fn live(commands: Arc<Commands>, ordinal: u32, rank: Rank, opened: &Done<Opened>) {
    let _ = commands.thread.set(current());
    let (library, transport, id) = match open(ordinal, rank.place) {
        Ok(all) => all,
        Err(why) => return opened.set(Err(why)),
    };
    opened.set(Ok(id));
    let life = Life {
        library,
        transport,
        rank,
        communicator: None,
        connecting: None,
        pending: VecDeque::new(),
        issuing: None,
        in_flight: VecDeque::new(),
        has_failed: false,
        broken: None,
        is_over: false,
    };
    life.run(&commands);
}

fn open(ordinal: u32, place: Place) -> Result<(&'static Library, Transport, Option<UniqueId>), String> {
    let library = Library::get()?;
    let transport = Transport::open(ordinal).map_err(|error| format!("{error:#}"))?;
    let id = (place.rank == 0).then(|| library.make_id()).transpose()?;
    Ok((library, transport, id))
}

struct Life {
    library: &'static Library,
    transport: Transport,
    rank: Rank,
    /// None before it is connected, and after it is aborted.
    communicator: Option<Communicator>,
    connecting: Option<Arc<Done<Result<(), String>>>>,
    pending: VecDeque<Task>,
    issuing: Option<Work>,
    in_flight: VecDeque<(Option<Mark>, Work)>,
    /// Whether NCCL or the GPU has failed here. The world is being broken for that.
    has_failed: bool,
    /// The fault for which it was aborted.
    broken: Option<WorldFault>,
    is_over: bool,
}

/// An operation that NCCL has.
struct Work {
    op: Op,
    made: NewMemory,
    /// None if its future has the fault already.
    done: Option<Arc<Done<Result<Made, OpFault>>>>,
}

impl Life {
    fn run(mut self, commands: &Commands) {
        let mut since = Instant::now();
        loop {
            if self.take(commands) {
                since = Instant::now();
            }
            if self.broken.is_none()
                && let Some(fault) = self.rank.health.fault()
            {
                self.abort(&fault);
            }
            if self.step() {
                since = Instant::now();
            }
            match self.has_work() {
                true => pause(since.elapsed(), AWAKE),
                false if self.is_over => return self.end(),
                false => park(),
            }
        }
    }

    /// Takes the commands that have come. Returns whether there were any.
    fn take(&mut self, commands: &Commands) -> bool {
        let queue = std::mem::take(&mut *lock(&commands.queue));
        let has_some = !queue.is_empty();
        for command in queue {
            match command {
                Command::Start(task) => self.pending.push_back(task),
                Command::End => self.is_over = true,
                Command::Connect(id, done) => {
                    self.connecting = Some(done);
                    match Communicator::init(self.library, self.rank.place, id) {
                        Ok(communicator) => self.communicator = Some(communicator),
                        Err(why) => self.fail(&why),
                    }
                }
            }
        }
        has_some
    }

    fn has_work(&self) -> bool {
        let is_waiting = self.in_flight.iter().any(|(mark, _)| mark.is_some()) || (self.has_failed && self.broken.is_none());
        self.connecting.is_some() || self.issuing.is_some() || is_waiting || !self.pending.is_empty()
    }

    /// Moves each operation as far as it goes. Returns whether one has moved.
    fn step(&mut self) -> bool {
        let mut has_moved = self.reap();
        while let Some(communicator) = self.communicator.as_ref().filter(|_| !self.has_failed) {
            let is_at_rest = self.connecting.is_none() && self.issuing.is_none() && self.pending.is_empty();
            if !self.has_work() {
                break;
            }
            match communicator.is_ready() {
                // Work in flight may fail, too.
                Ok(_) if is_at_rest => break,
                Ok(false) => return has_moved,
                Err(why) => self.fail(&why),
                Ok(true) => {
                    has_moved = true;
                    self.connecting.take().into_iter().for_each(|done| done.set(Ok(())));
                    self.issuing.take().into_iter().for_each(|work| self.fly(work));
                    if !self.has_failed {
                        self.pending.pop_front().into_iter().for_each(|task| self.issue(task));
                    }
                }
            }
        }
        if let Some(fault) = &self.broken {
            for task in std::mem::take(&mut self.pending) {
                task.done.set(Err(OpFault::World(fault.clone())));
            }
        }
        has_moved
    }

    /// Calls NCCL for an operation. The communicator is ready.
    fn issue(&mut self, task: Task) {
        let Task { op, wanted, done } = task;
        let (ends, made) = match self.memory(&op, &wanted) {
            Ok(all) => all,
            Err(error) => {
                // The next operation may not begin: another rank could take it for this one.
                let rank = self.rank.place.rank;
                self.fail_by(WorldFault::Abandoned { rank, why: format!("'{}': {error}", op.name) });
                return done.set(Err(OpFault::Value(error)));
            }
        };
        self.issuing = Some(Work { op, made, done: Some(done) });
        let Some(communicator) = &self.communicator else { return };
        // SAFETY: `memory` has found both ends for these sizes, and the work keeps them until the stream has
        // passed it.
        if let Err(why) = unsafe { communicator.issue(wanted.call, ends, self.transport.stream()) } {
            self.fail(&why);
        }
    }

    /// Finds the memory that an operation reads, and allocates what it writes.
    fn memory(&self, op: &Op, wanted: &Wanted) -> Result<(Ends, NewMemory), BoxError> {
        let on_device = op.spec.on_device.as_ref().expect("only operations on device memory come here");
        let (given, _) = on_device.given(op.given.value())?;
        let from = self.transport.address(given)?;
        let Some(len) = wanted.made else { return Ok((Ends { from, to: 0 }, None)) };
        let (memory, to) = self.transport.alloc(given, on_device.bytes(len))?;
        Ok((Ends { from, to }, Some((memory, len))))
    }

    /// Records an event behind an operation that is on the stream.
    fn fly(&mut self, work: Work) {
        match self.transport.mark() {
            Ok(mark) => self.in_flight.push_back((Some(mark), work)),
            Err(error) => {
                // Its memory stays until the end of the stream.
                self.in_flight.push_back((None, work));
                self.fail(&format!("{error:#}"));
            }
        }
    }

    /// Ends the operations that the stream has passed.
    fn reap(&mut self) -> bool {
        let mut has_moved = false;
        while let Some((Some(mark), _)) = self.in_flight.front() {
            let passed = self.transport.has_passed(mark);
            if matches!(passed, Ok(false)) {
                break;
            }
            has_moved = true;
            let (_, work) = self.in_flight.pop_front().expect("it was there above");
            match passed {
                Ok(_) => work.end(),
                Err(error) => {
                    // A device that is lost writes no more.
                    work.end_with(&self.fault(&format!("{error:#}")));
                    self.fail(&format!("{error:#}"));
                }
            }
        }
        has_moved
    }

    fn fault(&self, why: &str) -> WorldFault {
        WorldFault::Transport { what: format!("NCCL on rank {}: {why}", self.rank.place.rank) }
    }

    /// Breaks the world. The abort comes behind that: NCCL on the other ranks takes it for an error of
    /// theirs.
    fn fail(&mut self, why: &str) {
        self.fail_by(self.fault(why));
    }

    fn fail_by(&mut self, fault: WorldFault) {
        if self.broken.is_none() && !std::mem::replace(&mut self.has_failed, true) {
            (self.rank.break_by)(fault);
        }
    }

    /// Aborts the communicator. All futures get the fault.
    fn abort(&mut self, fault: &WorldFault) {
        self.broken = Some(fault.clone());
        self.communicator.take().into_iter().for_each(Communicator::abort);
        self.connecting.take().into_iter().for_each(|done| done.set(Err(fault.to_string())));
        self.in_flight.iter_mut().for_each(|(_, work)| work.tell(fault));
        if let Some(mut work) = self.issuing.take() {
            work.tell(fault);
            // Part of it may be on the stream.
            let mark = self.transport.mark().ok();
            self.in_flight.push_back((mark, work));
        }
    }

    fn end(mut self) {
        if let Some(communicator) = self.communicator.take() {
            let begin = Instant::now();
            let mut ready = communicator.finalize().and_then(|()| communicator.is_ready());
            while ready == Ok(false) && self.rank.health.fault().is_none() && begin.elapsed() < FINALIZE_MAX {
                pause(begin.elapsed(), AWAKE);
                ready = communicator.is_ready();
            }
            if ready == Ok(true) { communicator.destroy() } else { communicator.abort() }
        }
        if !self.in_flight.is_empty() {
            self.transport.wait();
        }
    }
}

impl Work {
    fn end(self) {
        let Self { op, made, done } = self;
        let Some(done) = done else { return };
        let Op { spec, given, .. } = op;
        // Its memory is free before the nodes behind allocate theirs.
        drop(given);
        let on_device = spec.on_device.as_ref().expect("only operations on device memory come here");
        done.set(Ok(on_device.make(made)));
    }

    fn end_with(mut self, fault: &WorldFault) {
        self.tell(fault);
    }

    fn tell(&mut self, fault: &WorldFault) {
        self.done.take().into_iter().for_each(|done| done.set(Err(OpFault::World(fault.clone()))));
    }
}
