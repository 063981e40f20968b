//! The error type of the library: opaque and cheap to clone. Its predicates say what went wrong; its message
//! names the node and says what to do.

mod foreign;
mod kind;
mod refused;
mod untold;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use crate::name::Name;
pub(crate) use foreign::{Foreign, dispose, drop_each, panic_message, shielded};
pub(crate) use kind::Kind;
pub use refused::Refused;
use untold::Told;
pub(crate) use untold::Untold;

/// Any error a node body may return.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a graph, a plan or a run did not do what was asked.
///
/// An error of a run is the *first cause*; the other nodes that failed by themselves are listed by
/// [`Error::others`]. `{}` prints the message, `{:#}` what caused it as well, `{:?}` the same on lines of its
/// own.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// The user's error that caused this one; clones of an error share it.
type Source = Foreign<Arc<dyn StdError + Send + Sync>>;

struct Inner {
    kind: Arc<Kind>,
    source: Option<Source>,
    others: Vec<Error>,
    told: Told,
}

impl Error {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::of(Arc::new(kind), None, Vec::new())
    }

    pub(crate) fn with_source(kind: Kind, source: BoxError) -> Self {
        Self::of(Arc::new(kind), Some(Foreign::new(source.into())), Vec::new())
    }

    fn of(kind: Arc<Kind>, source: Option<Source>, others: Vec<Error>) -> Self {
        Self(Arc::new(Inner { kind, source, others, told: Told::default() }))
    }

    /// The error of an inner graph, whose path is `path`: that is part of the name of the node.
    pub(crate) fn within(self, path: String) -> Self {
        let node = self.node().map(|node| format!("{path}/{node}").into());
        Kind::Within { path, node, fault: self }.into()
    }

    /// The first of `causes`, listing the rest. None when there is no cause.
    pub(crate) fn first_of(causes: Vec<Error>) -> Option<Self> {
        let mut causes = causes.into_iter();
        let first = causes.next()?;
        let others: Vec<Error> = causes.collect();
        if others.is_empty() {
            return Some(first);
        }
        // Who awaits the node may hold the first cause too, and there it stands alone.
        let Inner { kind, source, .. } = &*first.0;
        Some(Self::of(kind.clone(), source.clone(), others))
    }

    /// Says that somebody is told: of this, or of what it comes from.
    pub(crate) fn note_told(&self) {
        self.origin().0.told.note();
    }

    /// Has it told there when there are no clones any more and nobody was told. The first to ask counts.
    pub(crate) fn tell_at_last(&self, listener: Weak<dyn Untold>) {
        self.0.told.listen(listener);
    }

    /// Returns true if the run was cancelled, by [`Run::cancel`](crate::Run::cancel) or by dropping it.
    pub fn is_cancelled(&self) -> bool {
        matches!(*self.0.kind, Kind::Cancelled)
    }

    /// Returns true if the executor was shut down or dropped before the run ended; also if its threads are in
    /// the process that this one was forked from.
    pub fn is_shut_down(&self) -> bool {
        matches!(*self.0.kind, Kind::ShutDown | Kind::Forked)
    }

    /// Returns true if the executor had no room for another run, or the engine, or flow, none for another
    /// operation.
    pub fn is_busy(&self) -> bool {
        matches!(*self.0.kind, Kind::Busy { .. } | Kind::EngineBusy { .. } | Kind::FlowBusy { .. })
    }

    /// Returns true if a device, or the host, had not enough memory. Also true for the error of a run whose
    /// node failed because of that.
    pub fn is_out_of_memory(&self) -> bool {
        let kind = &*self.0.kind;
        let is_it = matches!(kind, Kind::OutOfMemory { .. } | Kind::NoPinnedMemory { .. } | Kind::NoRunMemory { .. });
        is_it || self.driver_code() == Some(2) || self.cause().is_some_and(Error::is_out_of_memory)
    }

    /// Returns true if a device was lost: a fault of one of its kernels ended all work on it. Also true for
    /// the error of a node that failed because of that.
    pub fn is_device_lost(&self) -> bool {
        matches!(*self.0.kind, Kind::DeviceLost { .. }) || self.cause().is_some_and(Error::is_device_lost)
    }

    /// Returns the variable whose value could not be taken, because a reader keeps it. An operation fails
    /// with this before its body is called; no body can return it.
    pub(crate) fn kept_variable(&self) -> Option<Cow<'static, str>> {
        if let Kind::VarKept { variable } = &*self.0.kind { Some(variable.clone()) } else { None }
    }

    /// Returns true if an operation could not begin, and a variable that it was to write has its old value.
    pub(crate) fn leaves_old_value(&self) -> bool {
        matches!(*self.0.kind, Kind::OpNotBegun { leaves_old: true, .. })
    }

    /// What an operation that did not run comes from: the failure of another.
    pub(crate) fn origin(&self) -> &Error {
        let mut origin = self;
        while let (Kind::NotRun { .. } | Kind::DoneInVain { .. }, Some(cause)) = (&*origin.0.kind, origin.cause()) {
            origin = cause;
        }
        origin
    }

    /// The error of this library that this one comes from.
    fn cause(&self) -> Option<&Error> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// Returns true if the body of a node, of an operation or of a flow panicked, or if dropping a value that
    /// it replaced or freed did.
    pub fn is_panic(&self) -> bool {
        use Kind::*;
        matches!(*self.0.kind, Panicked { .. } | OpPanicked { .. } | FlowPanicked { .. } | DropPanicked { .. })
            || matches!(*self.0.kind, OpFailed { .. }) && self.cause().is_some_and(Error::is_drop_panic)
    }

    fn is_drop_panic(&self) -> bool {
        matches!(*self.0.kind, Kind::DropPanicked { .. })
    }

    /// Returns true if the node, or the operation, did not run because one it depends on failed.
    pub fn is_skipped(&self) -> bool {
        matches!(*self.0.kind, Kind::Skipped { .. } | Kind::NotRun { .. } | Kind::DoneInVain { .. })
    }

    /// Returns true if the node did not run and no failure caused that: it is in an arm that was not taken,
    /// or in a loop that ended before its first iteration. The error of [`Run::node`](crate::Run::node); a
    /// run itself never ends with it.
    pub fn is_not_taken(&self) -> bool {
        matches!(*self.0.kind, Kind::NotTaken { .. })
    }

    /// Returns true if the graph or a policy's answer was not valid; such errors come out of `compile`.
    pub fn is_invalid_graph(&self) -> bool {
        use Kind::*;
        matches!(
            *self.0.kind,
            DuplicateName { .. }
                | NoName { .. }
                | DuplicatePort { .. }
                | ForeignValue { .. }
                | Cycle { .. }
                | SelfEdge { .. }
                | UnusedNode { .. }
                | NotANode { .. }
                | UnusedInput { .. }
                | TakenTwice { .. }
                | TakenAndRead { .. }
                | TakenAndReadInside { .. }
                | TakeCircle { .. }
                | TakenShared { .. }
                | Limit { .. }
                | Cost { .. }
                | DeviceOrdinal { .. }
                | DeviceTwice { .. }
                | Json { .. }
                | EmptySection { .. }
                | UnknownNodeId { .. }
                | Policy { .. }
                | TakenFromAround { .. }
                | TakenState { .. }
                | InnerPort { .. }
                | IsInner
                | NotJoined { .. }
                | Torn { .. }
                | Replaced { .. }
                | NotALoop { .. }
                | Body { .. }
        ) || matches!(&*self.0.kind, Within { fault, .. } if fault.is_invalid_graph())
    }

    /// Returns true if programs are no correct plan of their graph; such errors come out of
    /// [`Shape::verify_programs`](crate::graph::Shape::verify_programs).
    pub fn is_invalid_plan(&self) -> bool {
        use Kind::*;
        matches!(
            *self.0.kind,
            NotOrdered { .. }
                | RedundantWait { .. }
                | NoRecord { .. }
                | WaitsForever { .. }
                | RunCount { .. }
                | DeviceCount { .. }
                | Program { .. }
                | ReleasedEarly { .. }
        ) || matches!(&*self.0.kind, Within { fault, .. } if fault.is_invalid_plan())
    }

    /// The driver's code, if this is its answer.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn driver_code(&self) -> Option<u32> {
        if let Kind::Driver { code, .. } = &*self.0.kind { Some(*code) } else { None }
    }

    /// Returns the node, or the operation, that the error is about, where it is about one. A node in a loop
    /// or a branch has its path for a name: `loop/body/node`, `loop/condition/node`, `branch/arm 0/node`. Of
    /// a circle it is one of the nodes.
    pub fn node(&self) -> Option<&str> {
        use Kind::*;
        match &*self.0.kind {
            Failed { node, .. }
            | Panicked { node, .. }
            | Skipped { node, .. }
            | NotTaken { node, .. }
            | Observer { node, .. }
            | SelfEdge { node }
            | UnusedNode { node }
            | TakenAndRead { node, .. }
            | Cost { node, .. }
            | DeviceOrdinal { node, .. }
            | DeviceTwice { node, .. }
            | RedundantWait { node, .. }
            | NoRecord { node, .. }
            | WaitsForever { node }
            | RunCount { node, .. }
            | DeviceCount { node, .. }
            | TakenFromAround { node, .. }
            | NotJoined { node }
            | Torn { node }
            | Body { node, .. }
            | Undecided { node, .. }
            | TooManyIterations { node, .. }
            | NoSuchArm { node, .. } => Some(node),
            Within { node, .. } | Replaced { node, .. } | Policy { node, .. } => node.as_deref(),
            Cycle { path } => path.first().map(|node| &**node),
            TakenAndReadInside { reader, .. } => Some(reader),
            TakenState { taker, .. }
            | TakenShared { taker, .. }
            | TakeCircle { taker, .. }
            | TakenTwice { second: taker, .. } => Some(taker),
            NotOrdered { later, .. } => Some(later),
            ReleasedEarly { reader, .. } => Some(reader),
            DuplicateName { name } | ForeignValue { name } | NotALoop { name } => Some(name),
            OpFailed { operation }
            | OpNotBegun { operation, .. }
            | AndMoreFailed { operation, .. }
            | OpPanicked { operation, .. }
            | NotRun { operation, .. }
            | DoneInVain { operation, .. }
            | OpDevice { operation, .. }
            | VarTakenAndRead { operation, .. }
            | WaitsForItself { operation, .. }
            | WaitsForOwnEnd { operation }
            | OpNotJoined { operation }
            | ForeignVar { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// The nodes of a circle, from one of them to the same one.
    pub(crate) fn circle(&self) -> Option<&[Name]> {
        if let Kind::Cycle { path } = &*self.0.kind { Some(path) } else { None }
    }

    /// Returns what caused this, what caused that, and so on.
    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(self.source(), |&cause| cause.source())
    }

    /// Returns the other nodes that failed by themselves in the same run, in the order in which they failed.
    pub fn others(&self) -> &[Error] {
        &self.0.others
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(listener) = self.told.listener_if_untold() {
            let (source, others) = (self.source.take(), mem::take(&mut self.others));
            listener.hear(Error::of(self.kind.clone(), source, others));
        }
    }
}

impl Kind {
    /// Instead of a `From`, which rustc would offer to whoever has an error of another kind.
    pub(crate) fn into(self) -> Error {
        Error::new(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)?;
        // `{:#}` prints what caused it on the same line.
        if f.alternate() {
            self.causes().try_for_each(|cause| write!(f, ": {cause}"))?;
        }
        match self.others().len() {
            0 => Ok(()),
            1 => write!(f, " (and 1 other node failed)"),
            n => write!(f, " (and {n} other nodes failed)"),
        }
    }
}

/// For people too, because this is what `main` and `unwrap` print: the message, what caused it, and what else
/// failed.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.causes().try_for_each(|cause| write!(f, "\n  caused by: {cause}"))?;
        self.others().iter().try_for_each(|other| write!(f, "\n  also: {other:#}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &***source as _)
    }
}
