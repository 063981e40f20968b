//! A variable: its queue, its state, and its value.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device_uses::DeviceUses;
use super::queue::Queue;
use super::tokens::Grant;
use crate::error::{Error, Kind, Result, shielded};
use crate::name::Name;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::value::args::{Each, Key};
use crate::value::{Untakable, VarCell};

/// A variable without the type of its value. Pushing threads use the first fields, and threads that run
/// operations the last ones. Between them are 64 bytes, so that the two do not contend for a cache line.
/// Only an engine with observers uses the times between them.
#[repr(C, align(16))]
pub(crate) struct Variable {
    pub(super) queue: Queue,
    /// The address of its engine, to compare.
    pub(crate) engine: usize,
    pub(crate) name: Name,
    /// The failure that a read gets. Only a granted write changes it.
    poison: Mutex<Option<Error>>,
    /// When the last use has ended, and the last change.
    ended_ns: [AtomicU64; 2],
    version: AtomicU64,
    is_poisoned: AtomicBool,
    /// Uses by devices, which may not have ended.
    pub(crate) device_uses: DeviceUses,
    /// It had no value when it was made.
    begins_empty: bool,
}

impl Variable {
    #[inline(always)]
    fn new(name: Name, engine: usize, begins_empty: bool) -> Self {
        Self {
            queue: Queue::default(),
            name,
            engine,
            version: AtomicU64::new(0),
            begins_empty,
            poison: Mutex::new(None),
            ended_ns: [AtomicU64::new(0), AtomicU64::new(0)],
            is_poisoned: AtomicBool::new(false),
            device_uses: DeviceUses::new(),
        }
    }

    /// Returns the error of a read of a variable whose value was taken.
    pub(crate) fn empty(&self) -> Error {
        Kind::VarEmpty { variable: self.name.to_cow() }.into()
    }

    /// Returns the error of a take of a value that has other owners.
    fn kept(&self) -> Error {
        Kind::VarKept { variable: self.name.to_cow() }.into()
    }

    pub(crate) fn version(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `count_write`: the writes up to this version are
        // visible.
        self.version.load(Ordering::Acquire)
    }

    /// Returns true if it had no value at first, and has not been written.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.begins_empty && self.version() == 0
    }

    /// Counts a write. The caller has been granted a write.
    pub(crate) fn count_write(&self) {
        // ORDERING: Relaxed load: only granted writes store. Release pairs with the Acquire in `version`.
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns when the last use has ended that a change, or another use, waits for; 0 for never.
    pub(crate) fn ended_ns(&self, changes: bool) -> u64 {
        // ORDERING: Relaxed: the caller's grant comes after the end of those uses.
        self.ended_ns[usize::from(!changes)].load(Ordering::Relaxed)
    }

    /// Records that a use has ended. The caller has been granted it.
    pub(crate) fn set_ended_ns(&self, has_changed: bool, ns: u64) {
        // ORDERING: Relaxed, both: operations that wait for this one are granted after it.
        self.ended_ns[0].fetch_max(ns, Ordering::Relaxed);
        if has_changed {
            self.ended_ns[1].store(ns, Ordering::Relaxed);
        }
    }

    /// Returns true if there may be a failure, or a use by a device.
    #[inline]
    pub(crate) fn may_be_poisoned(&self) -> bool {
        // ORDERING: Relaxed: the caller's grant orders it after the write that stored it.
        self.is_poisoned.load(Ordering::Relaxed) || self.device_uses.has_begun()
    }

    /// Returns the failure that a read gets, if there is one.
    #[inline]
    pub(crate) fn poison(&self) -> Option<Error> {
        if self.may_be_poisoned() { self.why_poisoned() } else { None }
    }

    #[cold]
    fn why_poisoned(&self) -> Option<Error> {
        // ORDERING: Relaxed: the caller's grant orders it after the write that stored it.
        if !self.is_poisoned.load(Ordering::Relaxed) {
            return self.device_uses.failure();
        }
        lock(&self.poison).clone()
    }

    /// Sets or clears the failure that a read gets. The caller has been granted a write.
    pub(crate) fn set_poison(&self, poison: Option<Error>) {
        // ORDERING: Relaxed: the caller's grant orders it after the write that stored it.
        if poison.is_none() && !self.is_poisoned.load(Ordering::Relaxed) {
            return;
        }
        // ORDERING: Relaxed: the caller's request leaves the queue after this.
        self.is_poisoned.store(poison.is_some(), Ordering::Relaxed);
        let old = mem::replace(&mut *lock(&self.poison), poison);
        // It may be the last reference to a user's error.
        let _ = shielded(|| drop(old));
    }
}

/// A variable with its value.
pub(crate) struct TypedVariable<T> {
    pub(crate) variable: Variable,
    cell: VarCell<T>,
}

impl<T> TypedVariable<T> {
    /// Inlined, so that it is made in its place and not moved there.
    #[inline(always)]
    pub(crate) fn new(name: Name, engine: usize, value: Option<T>) -> Self {
        Self { variable: Variable::new(name, engine, value.is_none()), cell: VarCell::new(value) }
    }
}

impl<T> TypedVariable<T> {
    /// Returns a variable that was written once, with a value that may have other owners.
    #[inline]
    pub(crate) fn written(name: Name, engine: usize, value: Arc<T>) -> Self {
        let variable = Variable::new(name, engine, true);
        variable.count_write();
        Self { variable, cell: VarCell::shared(value) }
    }
}

/// A pointer to a variable, for the body of an operation. It keeps no count: the operation that frees the
/// variable is behind all others in its queue.
///
/// Only the body of the operation that has an access to the variable has this pointer, or a glance at the
/// variable. So a grant of that operation or glance is one for the variable.
#[derive(Debug)]
pub struct VarPtr<T>(NonNull<TypedVariable<T>>);

impl<T> VarPtr<T> {
    pub(super) fn new(typed: &TypedVariable<T>) -> Self {
        Self(NonNull::from(typed))
    }

    fn typed<'g>(&self, _: Grant<'g>) -> &'g TypedVariable<T> {
        // SAFETY: the grant shows that the operation is in the variable's queue, so the variable is alive.
        unsafe { self.0.as_ref() }
    }

    /// Writes a variable that the operation writes. No argument of the operation is left.
    #[inline(always)]
    pub(crate) fn put(&self, value: T, grant: Grant<'_>) -> Result<()> {
        // SAFETY: the operation has been granted the variable exclusively, and the caller has no reference to
        // the old value.
        self.overwrite(grant, |cell| unsafe { cell.put(value) })
    }

    /// Writes a value that may have other owners.
    pub(crate) fn put_shared(&self, value: Arc<T>, grant: Grant<'_>) -> Result<()> {
        // SAFETY: the operation has been granted the variable exclusively, and the caller has no reference to
        // the old value.
        self.overwrite(grant, |cell| unsafe { cell.put_shared(value) })
    }

    /// Runs a write, which drops the old value. A panic of that drop becomes an error: other values are still
    /// to be written, and their drops may panic, too.
    #[inline(always)]
    fn overwrite(&self, grant: Grant<'_>, write: impl FnOnce(&VarCell<T>)) -> Result<()> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted the variable exclusively, and the reference is gone before
        // the write.
        if mem::needs_drop::<T>() && unsafe { typed.cell.get() }.is_some() {
            return shielded(|| write(&typed.cell)).map_err(|message| drop_panicked(&typed.variable.name, message));
        }
        write(&typed.cell);
        Ok(())
    }
}

/// Stands for the variables of an engine in bounds such as [`Reads<Vars>`](crate::engine::Reads). It has no
/// values.
///
/// # Examples
/// A function that is generic over what an operation reads:
/// ```
/// use anabranch::engine::{OpFn, Reads, Vars};
/// use anabranch::{Engine, Executor, Op, Result, Var};
///
/// async fn sum_into<R: Reads<Vars>>(
///     engine: &Engine,
///     reads: R,
///     sum: &Var<i32>,
///     work: impl OpFn<Vars, R::Params, i32>,
/// ) -> Result<()> {
///     engine.push(Op::task("sum", reads, sum, work)).await?.await
/// }
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (x, y, sum) = (engine.var("x", 1), engine.var("y", 2), engine.var("sum", 0));
/// sum_into(&engine, (&x, &y), &sum, |x: &i32, y: &i32| x + y).await?;
/// assert_eq!(*sum.read().await?, 3);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub enum Vars {}

/// The operation has been granted the variable to read, or exclusively if it takes the value.
impl<T: Send + Sync + 'static> Key for VarPtr<T> {
    type Place = Vars;
    type Value = T;

    #[inline]
    fn get<'a>(&'a self, grant: Grant<'a>) -> Result<&'a T> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted a read, and writes only when no argument is left.
        unsafe { typed.cell.get() }.ok_or_else(|| typed.variable.empty())
    }

    fn each<'a>(vars: &'a [Self], grant: Grant<'a>) -> Result<Each<'a, T>> {
        Each::found(vars.iter().map(|var| var.get(grant)))
    }

    #[inline]
    fn share(&self, grant: Grant<'_>) -> Result<Arc<T>> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted a read, so no other writes the variable meanwhile.
        unsafe { typed.cell.share() }.ok_or_else(|| typed.variable.empty())
    }

    #[inline]
    fn take(&self, grant: Grant<'_>) -> Result<T> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted the variable exclusively, and nothing else of it refers to a
        // value that it takes.
        unsafe { typed.cell.take() }.map_err(|why| match why {
            Untakable::Empty => typed.variable.empty(),
            Untakable::Shared => typed.variable.kept(),
        })
    }

    fn check_take(&self, grant: Grant<'_>) -> Result<()> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted the variable exclusively, and nothing else of it refers to a
        // value that it takes.
        if unsafe { typed.cell.is_shared() } {
            return Err(typed.variable.kept());
        }
        self.get(grant).map(drop)
    }
}

impl<T: Send + Sync + 'static> VarPtr<T> {
    /// Takes the value out, which other owners may keep.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn take_shared(&self, grant: Grant<'_>) -> Result<Arc<T>> {
        let typed = self.typed(grant);
        // SAFETY: the operation has been granted the variable exclusively, and nothing else of it refers to a
        // value that it takes.
        unsafe { typed.cell.take_shared() }.ok_or_else(|| typed.variable.empty())
    }
}

// SAFETY: a shared reference to a variable, which is Sync.
unsafe impl<T: Send + Sync> Send for VarPtr<T> {}
// SAFETY: a shared reference to a variable, which is Sync.
unsafe impl<T: Send + Sync> Sync for VarPtr<T> {}

/// Returns the error for a value whose drop panicked.
#[cold]
#[inline(never)]
pub(super) fn drop_panicked(variable: &Name, message: String) -> Error {
    Kind::DropPanicked { variable: variable.to_cow(), message }.into()
}
