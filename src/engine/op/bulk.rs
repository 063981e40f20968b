//! Several operations as one: it uses the union of their variables, and one thread runs them in order.

use std::fmt;
use std::marker::PhantomData;
use std::mem;

use super::description::Op;
use crate::engine::Engine;
use crate::engine::core::Pushed;
use crate::engine::order::{Accesses, Body, Operation, Rest, Role, Unpushed};
use crate::error::{Error, Kind, Result};
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
        let mut parts = Parts::default();
        operations.into_iter().for_each(|op| parts.add(op));
        parts.join(name.into())
    }
}

/// Operations that are being joined. Their variables are borrowed for as long as the joined one's.
#[derive(Default)]
struct Parts {
    operations: Vec<Operation>,
    /// What they use. A variable may be there more than once.
    accesses: Accesses,
    fault: Option<Error>,
}

/// The accesses that a further one is compared with.
const RECENT: usize = 2;

impl Parts {
    fn add(&mut self, mut op: Op<'_>) {
        let Some(operation) = op.unpushed().take_operation() else { return };
        if self.fault.is_none() {
            self.fault = operation.fault().cloned().or_else(|| why_not_joined(&operation));
        }
        for access in operation.accesses() {
            // The others are compared when all are there, and sorted.
            let recent = self.accesses.len().saturating_sub(RECENT);
            match self.accesses[recent..].iter_mut().find(|known| known.address() == access.address()) {
                Some(known) => _ = known.add(access.mode()),
                None => self.accesses.push(access.again()),
            }
        }
        self.operations.push(operation);
    }

    fn join<'v>(&mut self, name: Name) -> Op<'v> {
        let Self { operations, accesses, fault } = mem::take(self);
        let body = Body::new(|_, rest| {
            *rest = Rest::Parts(operations);
            Ok(())
        });
        let mut operation = Operation::new(name, accesses, body);
        operation.role = Role::Joins;
        let mut unpushed = Unpushed::new(operation);
        unpushed.check(false);
        let mut op = Op(unpushed);
        fault.into_iter().for_each(|fault| op.set(|operation| operation.set_fault(fault)));
        op
    }
}

fn why_not_joined(operation: &Operation) -> Option<Error> {
    let is_alone = operation.is_async || operation.is_kernel;
    is_alone.then(|| Kind::OpNotJoined { operation: operation.name.to_cow() }.into())
}

/// Collects operations and [joins](Op::join) so many at a time; made by [`Engine::bulk`].
///
/// The collected operations are pushed when there are enough of them, when an operation cannot be joined, and
/// at [`Bulk::end`] or the drop. End the bulk before you read what they write.
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
    /// a kernel is pushed behind them by itself. It is lazy: nothing is added until it is awaited.
    ///
    /// # Errors
    /// As [`Engine::push`]. An operation with a mistake is not added; those that were collected are kept.
    /// Reads and [`Engine::idle`] report failures of operations.
    ///
    /// # Cancellation
    /// If it is dropped while it waits for room, what was collected is lost: neither run nor reported. Do not
    /// put it into a timeout where that matters.
    pub async fn push(&mut self, op: Op<'v>) -> Result<()> {
        let mut op = op;
        // Here, because the joined operation is refused as a whole.
        if let Some(fault) = self.engine.core.fault(op.unpushed()) {
            return Err(fault);
        }
        if op.unpushed().get().is_some_and(|operation| why_not_joined(operation).is_some()) {
            self.flush().await?;
            return self.engine.push(op).await.map(drop);
        }
        self.parts.add(op);
        if self.parts.operations.len() < self.operations_max { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<()> {
        if self.parts.operations.is_empty() {
            return Ok(());
        }
        self.engine.push(self.parts.join("bulk".into())).await.map(drop)
    }

    /// Pushes what was collected.
    ///
    /// # Errors
    /// As [`Engine::push`].
    ///
    /// # Cancellation
    /// As [`Bulk::push`].
    pub async fn end(mut self) -> Result<()> {
        self.flush().await
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        if self.parts.operations.is_empty() {
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
        let collected = self.parts.operations.len();
        f.debug_struct("Bulk").field("operations_max", &self.operations_max).field("collected", &collected).finish()
    }
}
