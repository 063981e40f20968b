//! The futures of requests, and the thread that drives requests while no poll does.
//!
//! ```text
//!  a request       is polled for the first time     the poll tests it for SPIN
//!                  its thread has nothing else      wakes itself, and is tested again: for POLLED
//!                  else                             is left to the thread, which wakes the future
//!
//!  the thread      requests are left to it          tests them; sleeps longer and longer after AWAKE
//!                  polls drive the requests         dozes: looks every DOZE whether they still do
//!                  else                             sleeps until it is woken
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::calls::{Called, Calls, Handle};
use super::path::{Buffers, Command, Done, Path, Remaining, Start, Step};
use crate::comm::detached::is_detached;
use crate::comm::done::{AWAKE, pause};
use crate::error::{Error, Kind, Result};
use crate::runtime::has_nothing_else;
use crate::sync::{AtomicU32, OnceLock, Ordering, Thread, current, park, park_for, spawn, spin_loop};

/// The longest time that the first poll tests its request. A message between two processes of one machine
/// takes about 1 µs.
const SPIN: Duration = Duration::from_micros(20);
/// The time for which a request is polled again and again. To leave it to the thread, and to be woken by it,
/// takes 10 to 40 µs; an exchange of 1 MiB takes 100 to 300.
const POLLED: Duration = Duration::from_micros(400);
/// The time between two looks of the thread at requests that are polled. With 100 µs, messages of 8 bytes
/// took 1.7 times as long: a timer is dear in a virtual machine.
const DOZE: Duration = Duration::from_millis(10);
/// The time for which the thread stays awake in addition, for a byte that is moved: twice as long as that
/// takes.
const NS_PER_BYTE: Duration = Duration::from_nanos(2);

const WORKS: u32 = 0;
const DOZES: u32 = 1;
const SLEEPS: u32 = 2;

/// The path of this process, and its thread.
pub(super) struct Progress<H> {
    pub(super) path: Path<H>,
    /// What the thread does: [`WORKS`], [`DOZES`] or [`SLEEPS`].
    state: AtomicU32,
    thread: OnceLock<Thread>,
}

impl<H: Handle> Progress<H> {
    /// Starts the thread.
    pub(super) fn start(path: Path<H>) -> Result<Arc<Self>> {
        let progress = Arc::new(Self { path, state: AtomicU32::new(WORKS), thread: OnceLock::new() });
        let own = progress.clone();
        spawn("anabranch-mpi".into(), move || own.run())
            .map_err(|error| -> Error { Error::with_source(Kind::Thread, error.into()) })?;
        Ok(progress)
    }

    fn run(&self) {
        let _ = self.thread.set(current());
        let (mut last, mut since) = (Remaining::Nothing, Instant::now());
        loop {
            let polls_drive = self.path.take_polled();
            let remaining = self.path.drive();
            if remaining != last {
                (last, since) = (remaining, Instant::now());
            }
            match remaining {
                Remaining::Nothing if !polls_drive => self.rest(SLEEPS),
                Remaining::Requests { bytes, are_left, .. } if are_left || !polls_drive => {
                    pause(since.elapsed(), AWAKE + NS_PER_BYTE * bytes.min(1 << 30) as u32);
                }
                _ => self.rest(DOZES),
            }
        }
    }

    /// Rests until it is woken, or until a doze is over.
    fn rest(&self, how: u32) {
        // ORDERING: SeqCst, with the swap in `attend`: either this thread sees the request of that caller, or
        // the caller sees that the thread rests.
        self.state.store(how, Ordering::SeqCst);
        match (how, self.path.drive()) {
            (SLEEPS, Remaining::Nothing) => park(),
            (DOZES, Remaining::Nothing | Remaining::Requests { are_left: false, .. }) => park_for(DOZE),
            _ => {}
        }
        // ORDERING: Relaxed: a caller that still sees that it rests only wakes it once too often.
        self.state.store(WORKS, Ordering::Relaxed);
    }

    /// Lets the thread drive a request that its future has left.
    fn attend(&self, done: &Done) {
        done.leave();
        // ORDERING: SeqCst, as in `rest`.
        if self.state.swap(WORKS, Ordering::SeqCst) != WORKS {
            self.wake();
        }
    }

    /// Lets the thread look now and then at requests that are polled.
    fn watch(&self) {
        // ORDERING: SeqCst, as in `rest`: this caller's request is in the path.
        if self.state.compare_exchange(SLEEPS, WORKS, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
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
        Request { progress: self.clone(), done, first_poll: None, has_ended: false }
    }
}

/// A request. If it is dropped after its start, its buffers stay until the request has completed.
pub(super) struct Request<H: Handle> {
    progress: Arc<Progress<H>>,
    done: Arc<Done>,
    first_poll: Option<Instant>,
    has_ended: bool,
}

impl<H: Handle> Drop for Request<H> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.progress.attend(&self.done);
        }
    }
}

impl<H: Handle> Future for Request<H> {
    type Output = Called<Buffers>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.test(cx);
        self.has_ended = polled.is_ready();
        polled
    }
}

impl<H: Handle> Request<H> {
    fn test(&mut self, cx: &mut Context<'_>) -> Poll<Called<Buffers>> {
        // A wake polls it in the midst of a drive, which may not begin another one for each end.
        if let Poll::Ready(end) = self.done.poll(None) {
            return Poll::Ready(end);
        }
        let begin = Instant::now();
        let is_first = self.first_poll.is_none();
        let first_poll = *self.first_poll.get_or_insert(begin);
        loop {
            self.progress.path.try_drive();
            if let Poll::Ready(end) = self.done.poll(None) {
                return Poll::Ready(end);
            }
            if !is_first || is_detached() || begin.elapsed() > SPIN {
                break;
            }
            spin_loop();
        }
        if has_nothing_else() && !is_detached() && first_poll.elapsed() < POLLED {
            self.progress.watch();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let end = self.done.poll(Some(cx.waker()));
        if end.is_pending() {
            self.progress.attend(&self.done);
        }
        end
    }
}
