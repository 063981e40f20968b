//! An operation of the engine: a name, its accesses to variables, and a body.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use super::access::Access;
use super::body::{Body, Enqueue, Rest, Work};
use super::queue::{Queue, REQUESTS_MAX};
use super::scope::{ENGINE, Scope};
use super::tokens::{Grant, NothingPending};
use super::variable::Variable;
use crate::device::StreamMut;
use crate::error::{BoxError, Error, Kind};
use crate::name::Name;
use crate::runtime::Origins;
use crate::sync::{AtomicBool, Ordering};

/// An operation. The accesses come first: see `Slot`. The body comes last, because the unused end of its
/// space is copied together with the fields behind it. The loads of that copy would wait for the stores of
/// these fields.
#[repr(C)]
pub(crate) struct Operation {
    /// Each variable once.
    pub(super) accesses: Accesses,
    rare: Option<Box<Rare>>,
    pub(crate) priority: i32,
    pub(crate) role: Role,
    /// Its future was made.
    has_begun: AtomicBool,
    /// Its closure returns a future.
    pub(crate) is_async: bool,
    /// It is a kernel for a stream of a device.
    pub(crate) is_kernel: bool,
    pub(crate) name: Name,
    /// Only the thread that runs the operation uses it. Others may use the requests meanwhile.
    body: UnsafeCell<Body>,
}

// SAFETY: only the thread that has the operation's `Granted` uses the body; all other fields are Sync.
unsafe impl Sync for Operation {}

/// The fields that few operations need. In a box, so that the others are smaller.
#[derive(Default)]
struct Rare {
    /// A mistake in it, for the push.
    fault: Option<Error>,
    scope: Option<Arc<Scope>>,
    target: Target,
    /// In an engine with observers.
    pushed: Option<Handed>,
}

/// When and where an operation was pushed.
pub(crate) struct Handed {
    pub(crate) at: Instant,
    pub(crate) origins: Origins,
}

/// The stream that a kernel asks for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) device: u32,
    /// None: any.
    pub(crate) lane: Option<u32>,
}

/// The priority of an operation that frees a variable.
pub(super) const FREES: i32 = i32::MAX;
/// The highest priority of other operations.
pub(crate) const PRIORITY_MAX: i32 = FREES - 1;

pub(crate) type Accesses = SmallVec<[Access; 2]>;

/// The purpose of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs a body of the user.
    User,
    /// Waits for a variable. Its handle gets the outcome.
    Waits,
    /// Frees its only variable.
    Frees,
    /// Performs other operations in order. Each succeeds or fails by itself.
    Joins,
}

/// The most variables that a further one is compared with. If an operation has more, all are sorted and
/// compared at the end.
pub(crate) const SCANNED: usize = 32;

impl Operation {
    #[inline]
    pub(crate) fn new(name: Name, accesses: Accesses, body: Body) -> Self {
        Self {
            name,
            accesses,
            body: UnsafeCell::new(body),
            rare: None,
            priority: 0,
            role: Role::User,
            has_begun: AtomicBool::new(false),
            is_async: false,
            is_kernel: false,
        }
    }

    /// Returns an operation of the engine's own: it frees a variable, or waits until it could be read or
    /// written. One that frees runs before all others, so that memory comes back early.
    pub(crate) fn own(role: Role, access: Access, work: impl Work) -> Self {
        let (name, priority) = if role == Role::Frees { ("free", FREES) } else { ("wait", 0) };
        Self { role, priority, ..Self::new(name.into(), smallvec![access], Body::new(work)) }
    }

    /// Empties a place for operations. After a run, nearly all operations have nothing left to drop. One
    /// check of that is cheaper than a drop of each field.
    #[inline(always)]
    pub(super) fn clear(place: &mut Option<Self>) {
        match place.as_mut().is_some_and(Self::is_bare) {
            true => std::mem::forget(place.take()),
            false => *place = None,
        }
    }

    /// Returns whether there is nothing to drop.
    #[inline(always)]
    pub(super) fn is_bare(&mut self) -> bool {
        let is_fixed = self.name.is_fixed() && !self.accesses.spilled() && self.rare.is_none();
        is_fixed && !self.body.get_mut().needs_drop()
    }

    /// Calls `act` with each access. The first is called apart, because most operations have only one, and
    /// loops are compiled for many.
    #[inline(always)]
    fn each(&self, mut act: impl FnMut(&Access)) {
        if let Some((first, others)) = self.accesses.split_first() {
            act(first);
            others.iter().for_each(act);
        }
    }

    #[inline]
    pub(crate) fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Returns its access to the variable with this address.
    pub(super) fn access_of(&self, address: usize) -> Option<&Access> {
        self.accesses.iter().find(|access| access.address() == address)
    }

    /// Returns true if it has only accesses and a closure.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        self.rare.is_none() && !self.is_async && !self.is_kernel && self.has_own_effect()
    }

    /// Returns whether it is neither a future nor a kernel.
    #[inline]
    pub(crate) fn is_task(&self) -> bool {
        !self.is_async && !self.is_kernel
    }

    /// Returns true if it changes its variables itself. One that frees or performs others does not.
    #[inline]
    pub(crate) fn has_own_effect(&self) -> bool {
        !matches!(self.role, Role::Frees | Role::Joins)
    }

    /// Returns the mistake in it, if there is one.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.rare.as_ref()?.fault.as_ref()
    }

    /// Records a mistake in it, which the push returns.
    pub(crate) fn set_fault(&mut self, fault: Error) {
        self.rare.get_or_insert_default().fault = Some(fault);
    }

    /// Returns the stream that it asks for, if it is a kernel for one of a device.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<Target> {
        self.is_kernel.then(|| self.rare.as_ref().map_or(Target::default(), |rare| rare.target))
    }

    pub(crate) fn set_target(&mut self, target: Target) {
        if self.is_kernel {
            self.rare.get_or_insert_default().target = target;
        }
    }

    /// Records that it is pushed now, if it was not tried before.
    pub(crate) fn note_pushed(&mut self, origins: impl FnOnce() -> Origins) {
        let pushed = &mut self.rare.get_or_insert_default().pushed;
        pushed.get_or_insert_with(|| Handed { at: Instant::now(), origins: origins() });
    }

    /// Returns when and where it was pushed, if that was recorded.
    pub(crate) fn pushed(&self) -> Option<&Handed> {
        self.rare.as_ref()?.pushed.as_ref()
    }

    /// Makes it an operation of a flow.
    pub(crate) fn set_scope(&mut self, scope: Arc<Scope>) {
        self.rare.get_or_insert_default().scope = Some(scope);
    }

    #[inline]
    pub(crate) fn scope(&self) -> Option<&Arc<Scope>> {
        self.rare.as_ref()?.scope.as_ref()
    }

    /// Returns the number of the owner that ends it when there are no polls. Without one it waits for a poll.
    pub(super) fn owner(&self) -> Option<usize> {
        match self.role {
            // The engine ends its own operations even if no future waits for them any more.
            Role::Frees | Role::Waits => Some(ENGINE),
            _ => self.scope().map(|scope| scope.owner()),
        }
    }

    pub(crate) fn frees(&self) -> bool {
        self.role == Role::Frees
    }

    /// Returns the error of its failure. It must not be a wait, which is named after its variable.
    pub(crate) fn failed_with(&self, cause: BoxError) -> Error {
        Error::with_source(Kind::OpFailed { operation: self.name.to_cow() }, cause)
    }

    /// Returns true if it has a variable to poison if it fails.
    pub(crate) fn writes(&self) -> bool {
        self.accesses.iter().any(|access| access.uses().changes())
    }
}

/// An operation that was not pushed yet. The handles of its variables outlive `'v`; or it frees its variable,
/// and owns it.
pub(crate) struct Unpushed<'v> {
    /// None once it was pushed. As an option it is moved only once, to its slot.
    pub(super) operation: Option<Operation>,
    vars: PhantomData<&'v ()>,
}

impl<'v> Unpushed<'v> {
    /// Returns an unpushed operation. The caller has handles to its variables for `'v`.
    #[inline]
    pub(crate) fn new(operation: Operation) -> Self {
        Self { operation: Some(operation), vars: PhantomData }
    }

    /// Returns one whose accesses may be to the same variables. `is_aliased`: whether a value is both taken
    /// and read. The caller has handles to the variables for `'v`.
    #[inline(always)]
    pub(crate) fn checked(name: Name, accesses: Accesses, is_aliased: bool, body: Body) -> Self {
        if is_aliased || accesses.len() > SCANNED {
            return Self::odd(name, accesses, is_aliased, body);
        }
        Self::new(Operation::new(name, accesses, body))
    }

    /// A function of its own, which returns by value. An operation that is changed after it was made lies in
    /// memory, and the loads of its next move wait for the stores.
    #[cold]
    #[inline(never)]
    fn odd(name: Name, accesses: Accesses, is_aliased: bool, body: Body) -> Self {
        let mut unpushed = Self::new(Operation::new(name, accesses, body));
        unpushed.check(is_aliased);
        unpushed
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Operation> {
        self.operation.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Operation> {
        self.operation.as_mut()
    }

    /// Takes the operation out, for another place that borrows its variables for `'v`.
    pub(crate) fn take(&mut self) -> Self {
        Self { operation: self.operation.take(), vars: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        Operation::clear(&mut self.operation);
    }

    /// Calls `act` with each variable.
    #[inline(always)]
    pub(crate) fn each_variable(&self, mut act: impl FnMut(&Access, &Variable)) {
        if let Some(operation) = &self.operation {
            // SAFETY: the operation was not pushed, so there are handles to its variables.
            operation.each(|access| act(access, unsafe { access.variable() }));
        }
    }

    /// Adds an access to a variable that the operation did not use before.
    pub(crate) fn add_access(&mut self, access: Access) {
        let Some(operation) = &mut self.operation else { return };
        operation.accesses.push(access);
        if operation.accesses.len() > REQUESTS_MAX {
            self.check(false);
        }
    }

    /// Reduces the accesses to one for each variable, and records a mistake in them.
    #[cold]
    pub(crate) fn check(&mut self, mut is_aliased: bool) {
        let Some(operation) = &mut self.operation else { return };
        let accesses = &mut operation.accesses;
        accesses.sort_by_key(Access::address);
        accesses.dedup_by(|one, kept| {
            let is_same = one.address() == kept.address();
            is_aliased |= is_same && kept.add(one.mode());
            is_same
        });
        let name = || operation.name.to_cow();
        let fault = if is_aliased {
            // SAFETY: the operation was not pushed, so there are handles to its variables.
            let variable = |access: &Access| unsafe { access.variable() }.name.to_cow();
            let taken = accesses.iter().find(|access| access.uses().is_taken()).map(variable);
            Some(Kind::VarTakenAndRead { operation: name(), variable: taken.unwrap_or_default() })
        } else {
            let what = || format!("the number of variables of operation '{}'", name());
            let (got, limit) = (accesses.len(), REQUESTS_MAX);
            (got > limit).then(|| Kind::Limit { what: what(), got, limit })
        };
        if let Some(fault) = fault {
            operation.set_fault(fault.into());
        }
    }

    /// Returns a number for the place in the program where it was made: that of its body's type.
    #[inline]
    pub(crate) fn site(&mut self) -> usize {
        self.operation.as_mut().map_or(0, |operation| operation.body.get_mut().site())
    }

    /// Holds the queues of the variables that it writes, and whose other users are glances only. Returns
    /// false, and holds none, if one of them is glanced at.
    ///
    /// The [`NothingPending`] shows that these queues are empty, and that no request enters.
    pub(crate) fn hold(&self, _: &NothingPending<'_>) -> bool {
        Queue::hold(self.written())
    }

    /// Ends what `hold` began.
    pub(crate) fn let_go(&self) {
        self.written().for_each(Queue::let_go);
    }

    /// Returns the queues of the variables that others must not glance at meanwhile. There is no other handle
    /// to one that it frees.
    #[inline]
    fn written(&self) -> impl Iterator<Item = &Queue> + Clone {
        let accesses =
            self.operation.as_ref().filter(|operation| !operation.frees()).map_or(&[][..], |operation| operation.accesses());
        // SAFETY: the operation was not pushed, so there are handles to its variables.
        accesses.iter().filter(|access| access.request.is_write()).map(|access| unsafe { &access.variable().queue })
    }

    /// Returns the operation as granted, to be run in place.
    ///
    /// The [`NothingPending`] shows that no operation is pending, and that none is pushed. So all variables
    /// are free.
    pub(crate) fn granted_at_once(&mut self, _: &NothingPending<'_>) -> Option<Granted<'_>> {
        self.operation.as_mut().map(|operation| Granted { operation })
    }
}

/// An operation that has been granted its variables. Only the owner of this runs it.
pub(crate) struct Granted<'o> {
    pub(super) operation: &'o Operation,
}

impl std::ops::Deref for Granted<'_> {
    type Target = Operation;

    fn deref(&self) -> &Operation {
        self.operation
    }
}

impl<'o> Granted<'o> {
    /// # Safety
    /// The operation has been granted its variables, and does not leave their queues during `'o`. No other
    /// thread runs it meanwhile.
    pub(super) unsafe fn new(operation: &'o Operation) -> Self {
        Self { operation }
    }

    /// Returns a part of a joined operation, which uses only variables of the whole.
    pub(crate) fn part<'p>(&'p self, part: &'p mut Operation) -> Granted<'p> {
        Granted { operation: part }
    }

    /// Runs its body, and uses it up.
    #[inline(always)]
    pub(crate) fn run(&mut self, rest: &mut Rest) -> Result<(), BoxError> {
        // SAFETY: the operation is granted as long as this `Granted` lives, and only its own body gets the
        // grant.
        let grant = unsafe { Grant::new() };
        self.body().run(grant, rest)
    }

    /// Returns a number for the place in the program where it was made: that of its body's type.
    #[inline]
    pub(crate) fn site(&self) -> usize {
        // SAFETY: only the owner of the `Granted` uses the body.
        unsafe { &*self.operation.body.get() }.site()
    }

    pub(crate) fn enqueue(&mut self, kernel: Enqueue, stream: StreamMut<'_>) -> Result<(), BoxError> {
        // SAFETY: the operation is granted as long as this `Granted` lives, and only its own kernel gets the
        // grant.
        kernel(unsafe { Grant::new() }, stream)
    }

    /// Returns true if its future exists, which has taken the values that the operation takes.
    pub(crate) fn has_begun(&self) -> bool {
        // ORDERING: Relaxed: the `Runnable` comes from the thread that stored it, by a lock or a queue.
        self.operation.has_begun.load(Ordering::Relaxed)
    }

    /// Records that its future exists.
    pub(crate) fn set_begun(&mut self) {
        // ORDERING: Relaxed: the `Runnable` takes it to the next thread, by a lock or a queue.
        self.operation.has_begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_body(&mut self, work: impl Work) {
        *self.body() = Body::new(work);
    }

    pub(crate) fn discard_body(&mut self) {
        self.body().discard();
    }

    fn body(&mut self) -> &mut Body {
        // SAFETY: only the owner of the `Granted` uses the body, and `&mut self` is the only use of that.
        unsafe { &mut *self.operation.body.get() }
    }

    /// Calls `act` with each variable.
    #[inline(always)]
    pub(crate) fn each_variable(&self, mut act: impl FnMut(&Access, &Variable)) {
        // SAFETY: the operation is in the queues of its variables, so they are alive.
        self.operation.each(|access| act(access, unsafe { access.variable() }));
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&Access, &Variable)> {
        // SAFETY: the operation is in the queues of its variables, so they are alive.
        self.operation.accesses.iter().map(|access| (access, unsafe { access.variable() }))
    }

    /// Returns the name for errors. A wait is named after its variable.
    pub(crate) fn full_name(&self) -> Cow<'static, str> {
        // SAFETY: the operation is in the queues of its variables, so they are alive.
        unsafe { self.operation.full_name() }
    }

    pub(crate) fn failed(&self, cause: BoxError) -> Error {
        Error::with_source(Kind::OpFailed { operation: self.full_name() }, cause)
    }

    pub(crate) fn panicked(&self, message: String) -> Error {
        Kind::OpPanicked { operation: self.full_name(), message }.into()
    }
}

impl Operation {
    /// Returns the name for errors. A wait is named after its variable.
    ///
    /// # Safety
    /// Its variables are alive.
    pub(super) unsafe fn full_name(&self) -> Cow<'static, str> {
        match (self.role, &self.accesses[..]) {
            (Role::Waits, [access]) => {
                let what = if access.uses().is_read() { "read of" } else { "wait for" };
                // SAFETY: the caller promises that the variable is alive.
                format!("{what} {}", &*unsafe { access.variable() }.name).into()
            }
            _ => self.name.to_cow(),
        }
    }
}
