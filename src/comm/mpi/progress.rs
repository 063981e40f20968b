//! The futures of requests, and the thread that drives requests while no poll does.
//!
//! ```text
//!  a request       event                                      it
//!                  first poll                                 is tested for SPIN
//!                  poll on a thread with nothing else         wakes itself, to be tested again: for POLLED; a
//!                                                             send, for the time that it takes if received
//!                  else, or dropped                           is left to the thread, which wakes the future
//!
//!  the thread      event                                      next
//!  any             a request is left                          works: it tests all; pauses between after AWAKE
//!  works, dozes    none is left, and polls test them          dozes: it looks again after DOZE
//!  dozes           none was polled for POLLED                 works: the executor does other work
//!  works, dozes    none was there for DOZE                    sleeps
//!  sleeps          a request wakes itself                     works, then dozes
//! ```
//! An executor may do other work after all: the code of a flow computes before it awaits, or a task is not
//! polled. Then requests wait for up to DOZE. So after each such stall, more and more of the next
//! requests are left to the thread at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::calls::{Called, Calls, Handle};
use super::path::{Buffers, Command, Done, Path, Remaining, Start, Step};
use crate::comm::detached::is_detached;
use crate::comm::done::{AWAKE, pause};
use crate::comm::sleeper::Sleeper;
use crate::error::{Error, Kind, Result};
use crate::runtime::has_nothing_else;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spawn, spin_loop};

/// The longest time that the first poll tests its request, and twice that if its thread has nothing else. A
/// message between two processes of one machine takes about 1 µs.
const SPIN: Duration = Duration::from_micros(10);
/// The time for which a request is polled again and again. To leave it to the thread, and to be woken by it,
/// takes 10 to 40 µs; an exchange of 1 MiB takes 100 to 300.
const POLLED: Duration = Duration::from_micros(400);
/// The time between two looks of the thread at requests that are polled. With 100 µs, messages of 8 bytes
/// took 1.7 times as long: a timer is dear in a virtual machine.
const DOZE: Duration = Duration::from_millis(10);
/// The requests that are left at once after the first stall. After each further one, twice as many.
const WARY_MIN: u32 = 64;
const WARY_MAX: u32 = 1 << 20;
/// The time for which the thread stays awake in addition, for a byte that is moved: twice as long as that
/// takes.
const NS_PER_BYTE: Duration = Duration::from_nanos(2);
/// How many bytes of a send are moved in a nanosecond, at least, if the other rank receives. On one machine,
/// 3 to 10 were measured.
const SENT_PER_NS: u64 = 2;

/// The path of this process, and its thread.
pub(super) struct Progress<H> {
    pub(super) path: Path<H>,
    sleeper: Sleeper,
    /// The number of next requests that do not wake themselves.
    wary: AtomicU32,
    begin: Instant,
    /// The time of the last poll of a request, since `begin`.
    polled_ns: AtomicU64,
}

impl<H: Handle> Progress<H> {
    /// Starts the thread.
    pub(super) fn start(path: Path<H>) -> Result<Arc<Self>> {
        let (sleeper, wary, polled_ns) = (Sleeper::new(), AtomicU32::new(0), AtomicU64::new(0));
        let progress = Arc::new(Self { path, sleeper, wary, begin: Instant::now(), polled_ns });
        let own = progress.clone();
        spawn("anabranch-mpi".into(), move || own.run())
            .map_err(|error| -> Error { Error::with_source(Kind::Thread, error.into()) })?;
        Ok(progress)
    }

    fn run(&self) {
        self.sleeper.attach();
        let (mut last, mut since, mut stalls) = (Remaining::Nothing, Instant::now(), 0);
        let mut has_dozed = false;
        loop {
            let unpolled = self.unpolled();
            if has_dozed && unpolled > POLLED && matches!(self.path.remaining(), Remaining::Requests { are_left: false, .. }) {
                self.note_stall(stalls);
                stalls += 1;
            }
            let remaining = self.path.drive();
            if remaining != last {
                (last, since) = (remaining, Instant::now());
            }
            has_dozed = false;
            match remaining {
                Remaining::Nothing if unpolled > DOZE => self.sleeper.sleep(|| self.path.drive() != Remaining::Nothing),
                Remaining::Requests { bytes, are_left, .. } if are_left || unpolled > POLLED => {
                    pause(since.elapsed(), AWAKE + NS_PER_BYTE * bytes.min(1 << 30) as u32);
                }
                _ => {
                    let is_left = |remaining| matches!(remaining, Remaining::Requests { are_left: true, .. });
                    self.sleeper.doze(DOZE, || is_left(self.path.drive()));
                    has_dozed = true;
                }
            }
        }
    }

    /// Returns the time since the last poll of a request.
    fn unpolled(&self) -> Duration {
        // ORDERING: Relaxed: it decides only which thread tests a request.
        self.begin.elapsed().saturating_sub(Duration::from_nanos(self.polled_ns.load(Ordering::Relaxed)))
    }

    /// Notes that requests that wake themselves were not polled while the thread dozed.
    fn note_stall(&self, earlier: u32) {
        // ORDERING: Relaxed: it decides only which thread tests a request.
        self.wary.store((WARY_MIN << earlier.min(20)).min(WARY_MAX), Ordering::Relaxed);
    }

    /// Returns whether a request may wake itself.
    fn may_be_polled(&self) -> bool {
        // ORDERING: Relaxed: as in `note_stall`. Two requests at once may count as one.
        let wary = self.wary.load(Ordering::Relaxed);
        if wary > 0 {
            self.wary.store(wary - 1, Ordering::Relaxed);
        }
        wary == 0
    }

    /// Leaves a request to the thread.
    fn leave(&self, done: &Done) {
        done.leave();
        self.sleeper.wake();
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
        Request { progress: self.clone(), done, first_poll: None, polled: POLLED, wakes_itself: false, has_ended: false }
    }
}

/// A request. If it is dropped after its start, its buffers stay until the request has completed.
pub(super) struct Request<H: Handle> {
    progress: Arc<Progress<H>>,
    done: Arc<Done>,
    first_poll: Option<Instant>,
    /// For how long it is polled again and again.
    polled: Duration,
    /// Whether it may wake itself.
    wakes_itself: bool,
    has_ended: bool,
}

impl<H: Handle> Drop for Request<H> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.progress.leave(&self.done);
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
    /// Returns the end of a send of so many bytes, if it comes before the request is left to the thread: in
    /// the time that it takes if the other rank receives.
    pub(super) async fn sent(&mut self, bytes: usize) -> Option<Called<Buffers>> {
        self.polled = Duration::from_nanos(bytes as u64 / SENT_PER_NS).min(POLLED);
        poll_fn(|cx| match Pin::new(&mut *self).poll(cx) {
            Poll::Pending if self.wakes_itself => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(end) => Poll::Ready(Some(end)),
        })
        .await
    }

    fn test(&mut self, cx: &mut Context<'_>) -> Poll<Called<Buffers>> {
        // A wake polls it in the midst of a drive, which may not begin another one for each end.
        if let Poll::Ready(end) = self.done.poll(None) {
            return Poll::Ready(end);
        }
        let begin = Instant::now();
        let is_first = self.first_poll.is_none();
        let first_poll = *self.first_poll.get_or_insert(begin);
        let polled_ns = (begin - self.progress.begin).as_nanos() as u64;
        // ORDERING: Relaxed: as in `unpolled`.
        self.progress.polled_ns.store(polled_ns, Ordering::Relaxed);
        let is_alone = has_nothing_else() && !is_detached();
        let most = if is_alone { 2 * SPIN } else { SPIN };
        loop {
            self.progress.path.try_drive();
            if let Poll::Ready(end) = self.done.poll(None) {
                return Poll::Ready(end);
            }
            if !is_first || is_detached() || begin.elapsed() > most {
                break;
            }
            spin_loop();
        }
        if is_first {
            self.wakes_itself = is_alone && self.progress.may_be_polled();
        }
        self.wakes_itself &= is_alone && first_poll.elapsed() < self.polled;
        if self.wakes_itself {
            // The thread looks now and then whether it is polled.
            self.progress.sleeper.wake_from_sleep();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let end = self.done.poll(Some(cx.waker()));
        if end.is_pending() {
            self.progress.leave(&self.done);
        }
        end
    }
}
