//! The reads of an operation: each becomes an access to a variable and an argument of the closure.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use super::var::Var;
use crate::engine::core::EngineCore;
use crate::engine::hash::hash;
use crate::engine::order::{Access, Accesses, Grant, Mode, Reading, SCANNED, VarPtr, Variable, Vars};
use crate::error::{Error, Result};
use crate::graph::Takable;
use crate::value::args::{ByRef, ByValue, EachOf, Key, OneRead, Param, Params, Place, Reads, Single};

impl Place for Vars {
    type View<'a> = Grant<'a>;
    type Fault = Error;
    type Binder<'b> = Asking;
}

/// Collects what an operation asks for.
pub struct Asking {
    /// The first two, each by its own name, so that they stay in registers until they are written to their
    /// place in the operation. A value that is written to memory word by word, and copied from there by a
    /// wider load, waits for its stores.
    first: Option<Access>,
    second: Option<Access>,
    /// All, if there are more than two. The first two entries are overwritten with those above.
    all: Vec<Access>,
    /// A bit for each of those behind the first two. Where a variable's is not set, it is a new one.
    seen: u64,
    /// Whether one is taken and read as well.
    pub(super) is_aliased: bool,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl Asking {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { first: None, second: None, all: Vec::new(), seen: 0, is_aliased: false }
    }

    /// Asks for a variable. The pointer is for the body of the operation that is made of this.
    #[inline(always)]
    pub(super) fn ask<T: Send + Sync + 'static>(&mut self, var: &Var<T>, mode: Mode) -> VarPtr<T> {
        let (access, pointer) = var.access(mode);
        let variable = var.variable();
        if !self.ask_few(access, variable, mode) {
            // Taken out, because what a call gets the address of is in memory.
            let (mut all, mut seen) = (mem::take(&mut self.all), self.seen);
            self.is_aliased |= ask_more(&mut all, &mut seen, variable, mode);
            (self.all, self.seen) = (all, seen);
        }
        pointer
    }

    pub(super) fn ask_all<'p, T: Send + Sync + 'static>(
        &mut self,
        vars: &'p [Var<T>],
        mode: Mode,
    ) -> impl Iterator<Item = VarPtr<T>> + use<'p, T> {
        self.ask_each(vars.iter(), mode);
        vars.iter().map(move |var| var.access(mode).1)
    }

    fn ask_each<'p, T: Send + Sync + 'static>(&mut self, vars: impl ExactSizeIterator<Item = &'p Var<T>>, mode: Mode) {
        let (mut all, mut seen) = (mem::take(&mut self.all), self.seen);
        if vars.len() > 2 {
            // And room for the two in front, and for one that is written.
            all.reserve(vars.len() + 3);
        }
        for var in vars {
            let variable = var.variable();
            let is_few = self.ask_few(var.access(mode).0, variable, mode);
            self.is_aliased |= !is_few && ask_more(&mut all, &mut seen, variable, mode);
        }
        (self.all, self.seen) = (all, seen);
    }

    /// Returns false if it is one more than two.
    #[inline(always)]
    fn ask_few(&mut self, access: Access, variable: &Variable, mode: Mode) -> bool {
        match (&mut self.first, &mut self.second) {
            (Some(first), _) if first.is_of(variable) => self.is_aliased |= first.add(mode),
            (first @ None, _) => *first = Some(access),
            (_, Some(second)) if second.is_of(variable) => self.is_aliased |= second.add(mode),
            (_, second @ None) => *second = Some(access),
            _ => return false,
        }
        true
    }

    /// Returns what was asked for.
    #[inline(always)]
    pub(super) fn accesses(self) -> Accesses {
        match (self.first, self.second) {
            (Some(first), Some(second)) if !self.all.is_empty() => all_of(first, second, self.all),
            (Some(first), second) => {
                let count = 1 + usize::from(second.is_some());
                let second = second.unwrap_or_else(|| first.filler());
                Accesses::from_buf_and_len([first, second], count)
            }
            (None, _) => Accesses::new(),
        }
    }
}

/// The reads of an operation that is not made yet.
pub(crate) struct Bound<'v, P> {
    pub(super) params: P,
    pub(super) asking: Asking,
    /// The handles of the variables.
    vars: PhantomData<&'v ()>,
}

impl<'v, P: Params<Vars>> Bound<'v, P> {
    #[inline(always)]
    pub(crate) fn new<R: Reads<Vars, Params = P> + 'v>(reads: R) -> Self {
        let mut asking = Asking::new();
        Self { params: reads.bind(&mut asking), asking, vars: PhantomData }
    }

    /// Calls `look`, which reads the variables, if there are one or two with values, and no pending operation
    /// uses them. `look` may fail; its result is None then, too.
    pub(crate) fn look<R>(&self, core: &Arc<EngineCore>, look: impl FnOnce(&P, Grant<'_>) -> Result<R>) -> Option<R> {
        let Asking { first: Some(first), second, all, is_aliased: false, .. } = &self.asking else { return None };
        let reading: Reading<'v> = if all.is_empty() { Reading::of(first, second.as_ref())? } else { return None };
        core.glance_at(&reading, |grant| look(&self.params, grant).ok()).flatten()
    }
}

/// Asks for one variable more than two. Returns whether it is taken and read as well.
fn ask_more(all: &mut Vec<Access>, seen: &mut u64, variable: &Variable, mode: Mode) -> bool {
    if all.is_empty() {
        all.extend([Access::new(variable, mode), Access::new(variable, mode)]);
    }
    let bit = 1 << (hash(std::ptr::from_ref(variable).addr()) >> 58);
    let may_be_known = *seen & bit != 0;
    *seen |= bit;
    let scanned = if may_be_known { all.len().min(SCANNED) } else { 2 };
    if let Some(known) = all[2..scanned].iter_mut().find(|known| known.is_of(variable)) {
        return known.add(mode);
    }
    all.push(Access::new(variable, mode));
    false
}

#[inline(never)]
fn all_of(first: Access, second: Access, mut all: Vec<Access>) -> Accesses {
    (all[0], all[1]) = (first, second);
    Accesses::from_vec(all)
}

impl<T: Send + Sync + 'static> Single for &Var<T> {}
impl<T: Send + Sync + 'static> Single for &[Var<T>] {}
impl<T: Send + Sync + 'static> Single for &[&Var<T>] {}
impl<T: Send + Sync + 'static> Single for TakeVar<'_, T> {}

impl<T: Send + Sync + 'static> OneRead<Vars> for &Var<T> {
    type Param = ByRef<VarPtr<T>>;

    #[inline(always)]
    fn bind(self, asking: &mut Asking) -> Self::Param {
        ByRef(asking.ask(self, Mode::READ))
    }
}

/// A variable whose value an operation takes; made by [`take`](crate::take).
///
/// # Examples
/// The operation owns the list, and changes it without a copy:
/// ```
/// use anabranch::{Engine, Executor, Op, take};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let list = engine.var("list", vec![3, 1, 2]);
/// let sort = |mut list: Vec<u32>| {
///     list.sort();
///     list
/// };
/// engine.push(Op::task("sort", take(&list), &list, sort)).await?;
/// assert_eq!(*list.read().await?, [1, 2, 3]);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct TakeVar<'v, T: Send + Sync + 'static>(pub(crate) &'v Var<T>);

impl<'v, T: Send + Sync + 'static> Takable for &'v Var<T> {
    type Take = TakeVar<'v, T>;

    fn take(self) -> TakeVar<'v, T> {
        TakeVar(self)
    }
}

impl<T: Send + Sync + 'static> OneRead<Vars> for TakeVar<'_, T> {
    type Param = ByValue<VarPtr<T>>;

    #[inline(always)]
    fn bind(self, asking: &mut Asking) -> Self::Param {
        ByValue(asking.ask(self.0, Mode::TAKE))
    }
}

/// A variable whose value a future gets as an `Arc`, whether it is read or taken. Other owners may keep a
/// value that is taken.
pub(crate) struct ShareVar<'v, T: Send + Sync + 'static> {
    pub(crate) var: &'v Var<T>,
    pub(crate) is_taken: bool,
}

impl<T: Send + Sync + 'static> Single for ShareVar<'_, T> {}

impl<T: Send + Sync + 'static> OneRead<Vars> for ShareVar<'_, T> {
    type Param = ByArc<T>;

    fn bind(self, asking: &mut Asking) -> ByArc<T> {
        let mode = if self.is_taken { Mode::TAKE } else { Mode::READ };
        ByArc { var: asking.ask(self.var, mode), is_taken: self.is_taken }
    }
}

pub(crate) struct ByArc<T> {
    var: VarPtr<T>,
    is_taken: bool,
}

impl<T: Send + Sync + 'static> Param<Vars> for ByArc<T> {
    type Arg<'a> = Arc<T>;
    type Owned = Arc<T>;

    fn fetch(&self, grant: Grant<'_>) -> Result<Arc<T>> {
        if self.is_taken { self.var.take_shared(grant) } else { self.var.share(grant) }
    }

    fn own(&self, grant: Grant<'_>) -> Result<Arc<T>> {
        self.fetch(grant)
    }

    fn check<'a>(&'a self, grant: Grant<'a>) -> Result<()> {
        self.var.get(grant).map(drop)
    }
}

impl<T: Send + Sync + 'static> OneRead<Vars> for &[Var<T>] {
    type Param = EachOf<VarPtr<T>>;

    #[inline(always)]
    fn bind(self, asking: &mut Asking) -> Self::Param {
        EachOf(asking.ask_all(self, Mode::READ).collect())
    }
}

/// For variables that are chosen at run time: no handle is cloned.
impl<T: Send + Sync + 'static> OneRead<Vars> for &[&Var<T>] {
    type Param = EachOf<VarPtr<T>>;

    #[inline(always)]
    fn bind(self, asking: &mut Asking) -> Self::Param {
        asking.ask_each(self.iter().copied(), Mode::READ);
        EachOf(self.iter().map(|var| var.access(Mode::READ).1).collect())
    }
}
