//! Several operations as one: it uses the union of their variables, and one thread runs them in order.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::description::Op;
use super::parts::Parts;
use crate::engine::Engine;
use crate::engine::core::{Push, Pushed};
use crate::engine::order::Operation;
use crate::error::Result;
use crate::name::Name;

impl<'v> Op<'v> {
    /// Joins operations into one that runs them one after the other. An operation that does little costs more
    /// to queue than to run; joined operations share that cost.
    ///
    /// The joined operation waits for the variables of all, so none of them begins before all could. Each
    /// fails, poisons and counts writes for itself, and the others run nevertheless. Their own priorities do
    /// not count.
    ///
    /// # Errors
    /// Its handle gives the first failure, which names the operation in it; [`Engine::idle`] gives the
    /// others, unless a read does. Futures, and kernels for a [`DeviceStream`](crate::DeviceStream), cannot
    /// be joined: then the push is an error that names them.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let cells: Vec<_> = (0..100).map(|n| engine.var(format!("cell {n}"), n)).collect();
    /// let doubled = cells.iter().map(|cell| Op::task("double", cell, cell, |n: &i32| 2 * n));
    /// engine.push(Op::join("double all", doubled)).await?;
    /// assert_eq!(*cells[21].read().await?, 42);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn join(name: impl Into<Name>, operations: impl IntoIterator<Item = Op<'v>>) -> Self {
        let operations = operations.into_iter();
        let mut parts = Parts::with_capacity(operations.size_hint().0);
        operations.for_each(|mut op| parts.add(&mut op));
        parts.join(name.into())
    }
}

/// Collects operations and [joins](Op::join) so many at a time; made by [`Engine::bulk`].
///
/// The collected operations are pushed when there are enough of them, when an operation cannot be joined, and
/// at [`Bulk::end`] or the drop. End the bulk before you read what they write. A slice of references that an
/// operation reads must live as long as the bulk: write `let both = [&x, &y];` in front of it.
///
/// # Examples
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let x = engine.var("x", 0);
/// let mut bulk = engine.bulk(100);
/// for _ in 0..1000 {
///     bulk.push(Op::task("add", &x, &x, |x: &i32| x + 1)).await?;
/// }
/// bulk.end().await?;
/// assert_eq!(*x.read().await?, 1000);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "it joins what is pushed into it"]
pub struct Bulk<'v> {
    engine: &'v Engine,
    operations_max: usize,
    parts: Parts,
    vars: PhantomData<Op<'v>>,
}

impl<'v> Bulk<'v> {
    pub(in crate::engine) fn new(engine: &'v Engine, operations_max: usize) -> Self {
        Self { engine, operations_max, parts: Parts::default(), vars: PhantomData }
    }

    /// Adds an operation, and pushes those that were collected if there are enough. One that is a future or
    /// a kernel is pushed behind them by itself. It acts at once, even if the future is never awaited. The
    /// future waits for room; sometimes it is pending once, so that other tasks run.
    ///
    /// # Errors
    /// As [`Engine::push`]. An operation with a mistake is not added; those that were collected are kept.
    /// Reads and [`Engine::idle`] report failures of operations. If the future is dropped unpolled,
    /// [`Engine::idle`] returns the refusal.
    ///
    /// # Cancellation
    /// If it is dropped while it waits for room, what was to be pushed is lost: neither run nor reported. Do
    /// not put it into a timeout where that matters.
    #[inline]
    pub fn push(&mut self, mut op: Op<'v>) -> impl Future<Output = Result<()>> {
        Adding(if self.try_collect(&mut op) { None } else { self.add(&mut op).map(|rest| Box::pin(rest.end())) })
    }

    /// Adds an operation of one variable if the bulk does not become full and no memory must be allocated.
    /// Returns true if it was added. Mostly that takes no call, so no registers are saved.
    #[inline(never)]
    fn try_collect(&mut self, op: &mut Op<'v>) -> bool {
        let core = &self.engine.core;
        let is_last = self.parts.len() + 1 >= self.operations_max;
        let is_accepted = |operation: &Operation, variable: &_| operation.is_task() && core.is_accepted(operation, variable);
        !is_last && self.parts.joining.add_within_capacity(op.unpushed(), is_accepted)
    }

    /// Adds any operation. Returns what the push waits for.
    #[inline(never)]
    fn add(&mut self, op: &mut Op<'v>) -> Option<Rest<'v>> {
        let engine = self.engine;
        // Here, because the joined operation is refused as a whole.
        if let Some(fault) = engine.core.fault(op.unpushed()) {
            return Some(Rest { first: Some(Push::refused(&engine.core, fault)), then: None, engine });
        }
        if op.unpushed().get().is_some_and(|operation| !operation.is_task()) {
            let op = Op(op.unpushed().take());
            return Some(match self.flush() {
                Some(first) if first.waits() => Rest { first: Some(first), then: Some(op), engine },
                first => {
                    // Its failure is that of an operation, which reads and `idle` report.
                    drop(first);
                    Rest { first: Some(engine.push(op)), then: None, engine }
                }
            });
        }
        self.parts.add(op);
        let is_full = self.parts.len() >= self.operations_max;
        is_full.then(|| Rest { first: self.flush(), then: None, engine })
    }

    /// Pushes what was collected, if anything was.
    fn flush(&mut self) -> Option<Push<'v>> {
        (self.parts.len() > 0).then(|| self.engine.push(self.parts.join("bulk".into())))
    }

    /// Pushes what was collected.
    ///
    /// # Errors
    /// As [`Engine::push`].
    ///
    /// # Cancellation
    /// As [`Bulk::push`].
    pub async fn end(mut self) -> Result<()> {
        match self.flush() {
            Some(push) => push.await.map(drop),
            None => Ok(()),
        }
    }
}

/// What a push waits for: the push of what was collected, and perhaps an operation to be pushed behind it.
struct Rest<'v> {
    first: Option<Push<'v>>,
    then: Option<Op<'v>>,
    engine: &'v Engine,
}

impl Rest<'_> {
    async fn end(self) -> Result<()> {
        if let Some(first) = self.first {
            first.await?;
        }
        match self.then {
            Some(op) => self.engine.push(op).await.map(drop),
            None => Ok(()),
        }
    }
}

/// The rest of a push. Nearly always there is none.
struct Adding<F>(Option<Pin<Box<F>>>);

impl<F: Future<Output = Result<()>>> Future for Adding<F> {
    type Output = Result<()>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            None => Poll::Ready(Ok(())),
            Some(rest) => rest.as_mut().poll(cx),
        }
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        if self.parts.len() == 0 {
            return;
        }
        let (core, mut op) = (&self.engine.core, self.parts.join("bulk".into()));
        match core.fault(op.unpushed()) {
            Some(fault) => core.keep_refusal(&fault),
            // However many are pending: a drop cannot wait for room.
            None => drop(Pushed::beyond(core, op.unpushed().take())),
        }
    }
}

impl fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collected = self.parts.len();
        f.debug_struct("Bulk").field("operations_max", &self.operations_max).field("collected", &collected).finish()
    }
}
