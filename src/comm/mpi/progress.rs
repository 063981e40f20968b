//! The thread that drives requests while no poll does, and the futures of requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::calls::{Called, Calls, Handle};
use super::path::{Buffers, Command, Done, Path, Remaining, Start, Step};
use crate::comm::done::{AWAKE, pause};
use crate::error::{Error, Kind, Result};
use crate::sync::{AtomicBool, OnceLock, Ordering, Thread, current, park, spawn, spin_loop};

/// The longest time that a poll tests its request before it leaves it to the thread. A message between two
/// processes of one machine takes about 1 µs.
const SPIN: Duration = Duration::from_micros(10);
/// The time for which the thread stays awake in addition, for a byte that is moved: twice as long as that
/// takes.
const NS_PER_BYTE: Duration = Duration::from_nanos(2);

/// The path of this process, and its thread.
pub(super) struct Progress<H> {
    pub(super) path: Path<H>,
    /// Whether the thread sleeps until it is woken.
    is_parked: AtomicBool,
    thread: OnceLock<Thread>,
}

impl<H: Handle> Progress<H> {
    /// Starts the thread.
    pub(super) fn start(path: Path<H>) -> Result<Arc<Self>> {
        let progress = Arc::new(Self { path, is_parked: AtomicBool::new(false), thread: OnceLock::new() });
        let own = progress.clone();
        spawn("anabranch-mpi".into(), move || own.run())
            .map_err(|error| -> Error { Error::with_source(Kind::Thread, error.into()) })?;
        Ok(progress)
    }

    fn run(&self) {
        let _ = self.thread.set(current());
        let (mut last, mut since) = (Remaining::Nothing, Instant::now());
        loop {
            let remaining = self.path.drive();
            if remaining != last {
                (last, since) = (remaining, Instant::now());
            }
            match remaining {
                Remaining::Nothing => self.park(),
                Remaining::Requests { bytes, .. } => pause(since.elapsed(), AWAKE + NS_PER_BYTE * bytes.min(1 << 30) as u32),
            }
        }
    }

    fn park(&self) {
        // ORDERING: SeqCst, with the swap in `attend`: either this thread sees the command of that caller, or
        // the caller sees that the thread is parked.
        self.is_parked.store(true, Ordering::SeqCst);
        if self.path.drive() == Remaining::Nothing {
            park();
        }
        // ORDERING: Relaxed: a caller that still sees true only wakes this thread once too often.
        self.is_parked.store(false, Ordering::Relaxed);
    }

    /// Lets the thread drive what a poll leaves pending.
    fn attend(&self) {
        // ORDERING: SeqCst, as in `park`.
        if self.is_parked.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits for a request in this thread: only for the start of a world. Returns None if the wait is over
    /// first, as `is_over` says of the time.
    pub(super) fn wait(&self, request: &Request<H>, is_over: impl Fn(Duration) -> bool) -> Option<Called<Buffers>> {
        let begin = Instant::now();
        loop {
            self.path.drive();
            match request.done.poll(None) {
                Poll::Ready(end) => return Some(end),
                Poll::Pending if is_over(begin.elapsed()) => return None,
                Poll::Pending => pause(begin.elapsed(), AWAKE),
            }
        }
    }

    /// Frees a communicator.
    pub(super) fn free(self: &Arc<Self>, comm: H) {
        let start = move |calls: &Calls<H>, _: &mut Buffers| {
            calls.free(comm)?;
            // It has no request, and so completes at the next test.
            Ok(Step::Request(calls.constants.request_null))
        };
        drop(self.request(Box::new(start), Buffers::none()));
    }

    /// Hands a request to the path. Returns its future.
    pub(super) fn request(self: &Arc<Self>, start: Start<H>, buffers: Buffers) -> Request<H> {
        let done = Arc::new(Done::default());
        self.path.add(Command { start, buffers, done: done.clone() });
        Request { progress: self.clone(), done, is_polled: false }
    }
}

/// A request. If it is dropped after its start, its buffers stay until the request has completed.
pub(super) struct Request<H: Handle> {
    progress: Arc<Progress<H>>,
    done: Arc<Done>,
    is_polled: bool,
}

impl<H: Handle> Drop for Request<H> {
    fn drop(&mut self) {
        if !self.is_polled {
            self.progress.attend();
        }
    }
}

impl<H: Handle> Future for Request<H> {
    type Output = Called<Buffers>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_polled = true;
        // A wake polls it in the midst of a drive, which may not begin another one for each end.
        if let Poll::Ready(end) = self.done.poll(None) {
            return Poll::Ready(end);
        }
        let begin = Instant::now();
        loop {
            self.progress.path.try_drive();
            if let Poll::Ready(end) = self.done.poll(None) {
                return Poll::Ready(end);
            }
            if begin.elapsed() > SPIN {
                break;
            }
            spin_loop();
        }
        let end = self.done.poll(Some(cx.waker()));
        if end.is_pending() {
            self.progress.attend();
        }
        end
    }
}
