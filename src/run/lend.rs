//! Borrowed data for the time of a call: values of runs that refer to data of the caller's stack.
//!
//! ```text
//!  state            event                     next             then
//!  readers          a read begins             readers + 1      reads
//!  readers          a read ends               readers - 1
//!  readers          the call ends             ENDED | readers  waits until no reader is left, then returns
//!  ENDED | readers  a read begins             (unchanged)      an error
//!  ENDED | readers  the last read ends        ENDED            wakes the thread of the call
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::sync::{AtomicU64, Ordering, Thread, current, park};

/// The call has ended. The other bits are the number of reads in progress.
const ENDED: u64 = 1 << 63;

/// Calls `body`, which may lend data that it only borrows to runs, operations and flows: as a [`Lent`] or a
/// [`LentMut`], which are values without lifetimes. Returns what `body` returns.
///
/// Await the run inside of `body`, for example with `futures::executor::block_on`. When `body` has returned
/// or panicked, no further read begins ([`Lent::with`] returns an error), and this function waits for the
/// reads in progress. So data is never read after the borrow, even if a run is leaked.
///
/// A run begins with its first poll, so one that is not awaited inside of `body` may have done nothing, or a
/// part of its work. After an error or a cancel, data that was lent for writing may be half written.
///
/// It blocks. In async code, call it on a thread for blocking work, or share the data by an
/// [`Arc`](std::sync::Arc) ([`Inputs::with_arc`](crate::Inputs::with_arc)). A future cannot borrow for its
/// runs: if it is leaked, the borrow ends, and the runs go on.
///
/// # Examples
/// ```
/// use anabranch::run::{Lent, LentMut, lend};
/// use anabranch::{Executor, Graph, Plan, Result, inputs, take};
/// use futures::executor::block_on;
///
/// fn plan() -> Result<Plan> {
///     let mut g = Graph::new();
///     let (x, y) = (g.input::<Lent<[f32]>>("x"), g.input::<LentMut<[f32]>>("y"));
///     let sum = g.try_task("sum", &x, |x: &Lent<[f32]>| Ok(x.with(|x| x.iter().sum::<f32>())?));
///     let square = g.try_task("square", (&x, take(&y)), |from: &Lent<[f32]>, mut to: LentMut<[f32]>| {
///         Ok(from.with(|from| to.with(|to| to.iter_mut().zip(from).for_each(|(y, x)| *y = x * x)))??)
///     });
///     g.output("sum", &sum);
///     g.output("square", &square);
///     g.compile()
/// }
///
/// fn squares(exec: &Executor, plan: &Plan, x: &[f32], y: &mut [f32]) -> Result<f32> {
///     lend(|lender| {
///         let run = exec.run(plan, inputs! { "x" => lender.lend(x), "y" => lender.lend_mut(y) });
///         Ok(*block_on(run)?.take::<f32>("sum")?)
///     })
/// }
///
/// let mut y = [0.0; 3];
/// assert_eq!(squares(&Executor::host()?, &plan()?, &[1.0, 2.0, 3.0], &mut y)?, 6.0);
/// assert_eq!(y, [1.0, 4.0, 9.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn lend<'env, R>(body: impl FnOnce(&Lender<'env>) -> R) -> R {
    let reads = Arc::new(Reads { state: AtomicU64::new(0), thread: current() });
    let lender = Lender { reads, borrow: PhantomData };
    body(&lender)
}

/// Lends data for the time of a call of [`lend`].
///
/// # Examples
/// It lends parts of one slice to several owners:
/// ```
/// use anabranch::run::{Lender, LentMut, lend};
///
/// fn parts<'d>(lender: &Lender<'d>, data: &'d mut [f32]) -> Vec<LentMut<[f32]>> {
///     data.chunks_mut(3).map(|part| lender.lend_mut(part)).collect()
/// }
///
/// let mut data = [0.0; 8];
/// lend(|lender| {
///     // Give each part to a run, or to a node. Here the caller writes them.
///     parts(lender, &mut data).iter_mut().try_for_each(|part| part.with(|part| part.fill(1.0)))
/// })?;
/// assert_eq!(data, [1.0; 8]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Lender<'env> {
    reads: Arc<Reads>,
    /// Must not shrink: then data of `body` itself could be lent.
    borrow: PhantomData<fn(&'env ()) -> &'env ()>,
}

impl<'env> Lender<'env> {
    /// Lends data for reading. Its clones may be read on several threads at once.
    pub fn lend<T: Sync + ?Sized>(&self, data: &'env T) -> Lent<T> {
        Lent { data: NonNull::from(data), reads: self.reads.clone() }
    }

    /// Lends data for reading and writing, to one owner. For several writers lend parts, such as those of
    /// `chunks_mut`.
    pub fn lend_mut<T: Send + ?Sized>(&self, data: &'env mut T) -> LentMut<T> {
        LentMut { data, reads: self.reads.clone() }
    }
}

impl Drop for Lender<'_> {
    fn drop(&mut self) {
        self.reads.end();
    }
}

impl fmt::Debug for Lender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").finish_non_exhaustive()
    }
}

/// Borrowed data. It can be read until the call of [`lend`] that lent it returns.
///
/// # Examples
/// ```
/// use anabranch::run::{Lent, lend};
///
/// fn words(text: &Lent<str>) -> anabranch::Result<usize> {
///     text.with(|text| text.split(' ').count())
/// }
///
/// let text = String::from("it is borrowed");
/// let kept = lend(|lender| {
///     let text = lender.lend(text.as_str());
///     assert_eq!(words(&text).ok(), Some(3));
///     text
/// });
/// assert!(words(&kept).is_err(), "the call of `lend` has ended");
/// ```
pub struct Lent<T: ?Sized> {
    data: NonNull<T>,
    reads: Arc<Reads>,
}

/// Borrowed data. It can be read and written until the call of [`lend`] that lent it returns. It has one
/// owner: a node gets it by [`take`](crate::graph::take).
///
/// # Examples
/// ```
/// use anabranch::run::{LentMut, lend};
/// use anabranch::{Executor, Graph, inputs, take};
///
/// let mut g = Graph::new();
/// let bytes = g.input::<LentMut<[u8]>>("bytes");
/// let fill = g.try_task("fill", take(&bytes), |mut b: LentMut<[u8]>| Ok(b.with(|b| b.fill(7))?));
/// g.output("filled", &fill);
/// let (exec, plan) = (Executor::inline(), g.compile()?);
///
/// let mut bytes = [0_u8; 4];
/// lend(|lender| {
///     let run = exec.run(&plan, inputs! { "bytes" => lender.lend_mut(&mut bytes[..]) });
///     futures::executor::block_on(run)
/// })?;
/// assert_eq!(bytes, [7; 4]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct LentMut<T: ?Sized> {
    data: *mut T,
    reads: Arc<Reads>,
}

// SAFETY: it is a reference to data that threads may share.
unsafe impl<T: Sync + ?Sized> Send for Lent<T> {}
// SAFETY: it is a reference to data that threads may share.
unsafe impl<T: Sync + ?Sized> Sync for Lent<T> {}
// SAFETY: it is the only reference to data that threads may hand over.
unsafe impl<T: Send + ?Sized> Send for LentMut<T> {}
// SAFETY: a shared one gives no access to the data.
unsafe impl<T: ?Sized> Sync for LentMut<T> {}

impl<T: ?Sized> Lent<T> {
    /// Calls `read` with the data. The end of the call of [`lend`] waits for it, so `read` must not wait for
    /// that end.
    ///
    /// # Errors
    /// If the call of [`lend`] has ended.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R> {
        let _reading = Reading::begin(&self.reads)?;
        // SAFETY: the data is borrowed at least until `lend` returns, which waits for `_reading`.
        Ok(read(unsafe { self.data.as_ref() }))
    }
}

impl<T: ?Sized> LentMut<T> {
    /// Calls `write` with the data. The end of the call of [`lend`] waits for it, so `write` must not wait
    /// for that end.
    ///
    /// # Errors
    /// If the call of [`lend`] has ended.
    pub fn with<R>(&mut self, write: impl FnOnce(&mut T) -> R) -> Result<R> {
        let _reading = Reading::begin(&self.reads)?;
        // SAFETY: the data is borrowed at least until `lend` returns, which waits for `_reading`. There is
        // one `LentMut` of it, which is borrowed here.
        Ok(write(unsafe { &mut *self.data }))
    }
}

impl<T: ?Sized> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self { data: self.data, reads: self.reads.clone() }
    }
}

impl<T: ?Sized> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

impl<T: ?Sized> fmt::Debug for LentMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentMut").finish_non_exhaustive()
    }
}

/// The reads of all that one call of [`lend`] lends.
struct Reads {
    /// The number of reads in progress, and [`ENDED`].
    state: AtomicU64,
    /// The thread of the call.
    thread: Thread,
}

impl Reads {
    /// Lets no further read begin, and waits for the reads in progress.
    fn end(&self) {
        // ORDERING: Acquire pairs with the Release of a read's end: the caller may write the data after this.
        let mut state = self.state.fetch_or(ENDED, Ordering::Acquire);
        let mut has_parked = false;
        while state & !ENDED != 0 {
            park();
            has_parked = true;
            // ORDERING: Acquire pairs with the Release of a read's end: the caller may write the data after
            // this.
            state = self.state.load(Ordering::Acquire);
        }
        if has_parked {
            // The wake may have been meant for a future that this thread waits for.
            self.thread.unpark();
        }
    }
}

/// A read in progress.
struct Reading<'a>(&'a Reads);

impl<'a> Reading<'a> {
    fn begin(reads: &'a Reads) -> Result<Self> {
        let begin = |state| (state & ENDED == 0).then_some(state + 1);
        // ORDERING: Relaxed: the data was handed over with the `Lent`. What the end must see is that a read
        // has begun: both change one word.
        match reads.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin) {
            Ok(_) => Ok(Self(reads)),
            Err(_) => Err(Kind::LendEnded.into()),
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire of `end`: what was read and written precedes it.
        if self.0.state.fetch_sub(1, Ordering::Release) == ENDED | 1 {
            self.0.thread.unpark();
        }
    }
}
