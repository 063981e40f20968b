//! The observers of an executor, and work that they have been told of and that has not ended.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use super::{DeviceSpan, Ended, Launched, Observer, Origin, RunId, Work, WorkSpan, WorkThread, inside};
use crate::device::queue::{PartTimes, Submitted};
use crate::error::{Kind, Result, shielded};
use crate::sync::thread_local;

thread_local! {
    /// The run or the flow whose body this thread runs, if it has observers; else 0.
    static AROUND: Cell<u64> = const { Cell::new(0) };
    /// One more than the number of the worker that this thread is; else 0.
    static WORKER: Cell<u32> = const { Cell::new(0) };
    /// This thread, once it was asked for: `std::thread::current` counts an owner.
    static THREAD: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// Marks this thread as that worker of an executor.
pub(crate) fn note_worker(number: usize) {
    WORKER.with(|worker| worker.set(number as u32 + 1));
}

/// Returns the run or the flow whose body this thread runs, if it has observers.
pub(crate) fn run_around() -> Option<RunId> {
    RunId::of(AROUND.try_with(Cell::get).unwrap_or(0))
}

impl WorkThread {
    pub(crate) fn current() -> Self {
        let worker = WORKER.try_with(Cell::get).unwrap_or(0).checked_sub(1);
        let id = THREAD.try_with(Cell::get).ok().flatten().unwrap_or_else(|| {
            let id = thread::current().id();
            let _ = THREAD.try_with(|thread| thread.set(Some(id)));
            id
        });
        Self { worker, id }
    }
}

/// The observers of an executor; at least one.
pub(crate) struct Observers {
    all: Box<[Arc<dyn Observer>]>,
    needs_begins: bool,
    /// The times that runs keep count from here.
    epoch: Instant,
}

impl Observers {
    pub(crate) fn of(all: Vec<Arc<dyn Observer>>) -> Option<Self> {
        let needs_begins = all.iter().any(|observer| observer.needs_begins());
        (!all.is_empty()).then(|| Self { all: all.into(), needs_begins, epoch: Instant::now() })
    }

    /// Returns the time now, in ns, as runs keep it: never 0.
    pub(crate) fn now_ns(&self) -> u64 {
        self.ns_of(Instant::now())
    }

    pub(crate) fn ns_of(&self, time: Instant) -> u64 {
        1 + u64::try_from(time.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX - 1)
    }

    /// Returns the time that was kept so.
    pub(crate) fn instant_of(&self, ns: u64) -> Instant {
        self.epoch + std::time::Duration::from_nanos(ns.saturating_sub(1))
    }

    /// Returns what work keeps of this thread, for each observer.
    pub(crate) fn origins(&self) -> Origins {
        if !self.needs_begins {
            return Origins::default();
        }
        // A panic of theirs is of no work yet, and there is nothing to fail.
        let origin = |observer: &Arc<dyn Observer>| {
            let mut origin = None;
            let _ = inside(0, || shielded(|| origin = observer.origin()));
            origin
        };
        let origins: Vec<Option<Origin>> = self.all.iter().map(origin).collect();
        Origins(if origins.iter().any(Option::is_some) { origins.into() } else { Box::default() })
    }

    /// Tells that work begins, which could have begun at `ready`.
    ///
    /// `of` is the engine that a wait of an observer would be for, or 0.
    pub(crate) fn begin(&self, of: usize, work: Work, ready: Instant, origins: &Origins) -> Begun {
        let panic = if self.needs_begins { self.tell(of, |at, observer| observer.begins(&work, origins.of(at))) } else { None };
        // Later, because what an observer does in `begins` is not the work's.
        let start = Instant::now();
        let thread = WorkThread::current();
        let (ready, ended, launched) = (ready.min(start), Ended::Ok, Launched::Host);
        let span = WorkSpan { work, thread, ready, start, end: start, polls: 0, ended, launched, on_device: None };
        Begun { of, panic, span, times: None }
    }

    /// Runs a body, or polls a future, which must not unwind. Tells of it before and after.
    pub(crate) fn around<R>(&self, begun: &mut Begun, body: impl FnOnce() -> R) -> R {
        begun.span.polls += 1;
        if self.needs_begins {
            begun.keep(self.tell(begun.of, |_, observer| observer.enters(&begun.span.work)));
        }
        let outer = AROUND.try_with(|around| around.replace(begun.span.work.run.get())).unwrap_or(0);
        let done = body();
        let _ = AROUND.try_with(|around| around.set(outer));
        if self.needs_begins {
            begun.keep(self.tell(begun.of, |_, observer| observer.leaves(&begun.span.work)));
        }
        done
    }

    /// Tells that work has ended, at this time. Returns the error of the first observer that has panicked at
    /// this work.
    pub(crate) fn end(&self, mut begun: Begun, ended: Ended, launched: Launched, end: Instant) -> Result<()> {
        begun.leave(launched, end);
        self.end_left(begun, ended)
    }

    /// Tells so of work that has [left its thread](Begun::leave).
    pub(crate) fn end_left(&self, mut begun: Begun, ended: Ended) -> Result<()> {
        begun.span.ended = ended;
        let last = self.tell(begun.of, |_, observer| observer.ended(&begun.span));
        match begun.panic.take().or(last) {
            None => Ok(()),
            Some(message) => Err(Kind::Observer { node: begun.span.work.name, message }.into()),
        }
    }

    /// Calls all observers. Returns the message of the first panic.
    fn tell(&self, of: usize, tell: impl Fn(usize, &dyn Observer)) -> Option<String> {
        let told = |at, observer: &Arc<dyn Observer>| inside(of, || shielded(|| tell(at, &**observer))).err();
        // All are called, whatever one of them does.
        self.all.iter().enumerate().fold(None, |first, (at, observer)| {
            let panic = told(at, observer);
            first.or(panic)
        })
    }
}

/// What work keeps of the thread that has handed it over, for each observer; empty if none keeps anything.
#[derive(Default, Clone)]
pub(crate) struct Origins(Box<[Option<Origin>]>);

impl Origins {
    fn of(&self, observer: usize) -> Option<&Origin> {
        self.0.get(observer)?.as_ref()
    }
}

/// Work that observers have been told of, and that has not ended.
pub(crate) struct Begun {
    of: usize,
    /// Complete but for its end.
    span: WorkSpan,
    /// The message of the first observer that has panicked at it.
    panic: Option<String>,
    /// The times of its device, with the numbers of the device and of its part.
    times: Option<(Arc<dyn PartTimes>, u32, u32)>,
}

impl Begun {
    pub(crate) fn start(&self) -> Instant {
        self.span.start
    }

    /// Notes that this thread has done its share, at that time. In its place: a span is large, and each move
    /// of it is a copy.
    pub(crate) fn leave(&mut self, launched: Launched, end: Instant) {
        (self.span.thread, self.span.end, self.span.launched) = (WorkThread::current(), end, launched);
    }

    /// Notes that this thread has submitted the work to a device, which took it as a part, or refused all.
    pub(crate) fn submit(&mut self, submitted: Option<(&Submitted, usize, u32)>, end: Instant) {
        let is_graph = submitted.is_some_and(|(submitted, ..)| submitted.is_graph);
        self.leave(if is_graph { Launched::CudaGraph } else { Launched::Calls }, end);
        let times = |(submitted, device, part): (&Submitted, _, _)| {
            let times = submitted.times.as_ref().filter(|times| times.has(part))?;
            Some((times.clone(), device as u32, part))
        };
        self.times = submitted.and_then(times);
    }

    /// Whether its device will tell when it ran.
    pub(crate) fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Notes when its device ran it, if it has ended it. Returns whether that is known.
    pub(crate) fn read_times(&mut self) -> bool {
        if let Some((times, device, part)) = &self.times
            && let Some(ran) = times.of(*part)
        {
            self.span.on_device = Some(Box::new(DeviceSpan::new(*device, ran)));
            self.times = None;
        }
        self.span.on_device.is_some()
    }

    /// Returns when it ended: on its device, if that is known; otherwise on its thread.
    pub(crate) fn end(&self) -> Instant {
        self.span.ran().1
    }

    fn keep(&mut self, panic: Option<String>) {
        if self.panic.is_none() {
            self.panic = panic;
        }
    }
}
