//! The error type of the library: opaque and cheap to clone. Its predicates tell kinds of failures apart. Its
//! message names the node and says what to do.

mod foreign;
mod kind;
mod port_kind;
mod race;
mod refused;
mod words;
mod world_fault;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
// The atomics of std: this room is above `sync`, and no model depends on these.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::name::Name;
pub(crate) use foreign::{Foreign, dispose, drop_each, panic_message, shielded};
pub(crate) use kind::Kind;
pub(crate) use port_kind::PortKind;
pub(crate) use race::{How, Race, Site, Use};
pub use refused::Refused;
pub(crate) use world_fault::WorldFault;

/// Any error a node body may return.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a graph, a plan, a run, an operation or a flow.
///
/// An error of a run is its *first cause*. [`Error::others`] lists the other nodes that failed by themselves.
/// `{}` prints the message, `{:#}` the message and its causes on one line, `{:?}` the same on several lines.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let text = g.input::<String>("text");
/// let number = g.try_task("parse", &text, |text: &String| Ok(text.parse::<u32>()?));
/// g.output("number", &number);
///
/// let (exec, plan) = (Executor::inline(), g.compile()?);
/// let run = exec.run(&plan, inputs! { "text" => "seven".to_string() });
/// let error = futures::executor::block_on(run).unwrap_err();
/// assert_eq!(error.node(), Some("parse"));
/// assert!(!error.is_panic() && !error.is_cancelled());
/// eprintln!("{error:#}"); // with the cause
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// The user's error that caused this one. Clones of an error share it.
type Source = Foreign<Arc<dyn StdError + Send + Sync>>;

struct Inner {
    kind: Arc<Kind>,
    source: Option<Source>,
    others: Vec<Error>,
    /// The number of the item, if the error is about an item of a run over many items.
    item: Option<u64>,
    /// Whether a clone of this error was reported. Clones share all fields.
    is_reported: AtomicBool,
    listener: OnceLock<Weak<dyn Listener>>,
}

/// A listener for errors that were not reported.
pub(crate) trait Listener: Send + Sync {
    /// Takes an error whose last clone was dropped, and which was not reported.
    fn take(&self, error: Error);
}

impl Error {
    pub(crate) fn with_source(kind: Kind, source: BoxError) -> Self {
        Self::of(Arc::new(kind), Some(Foreign::new(source.into())), Vec::new())
    }

    fn of(kind: Arc<Kind>, source: Option<Source>, others: Vec<Error>) -> Self {
        Self::of_item(kind, source, others, None)
    }

    fn of_item(kind: Arc<Kind>, source: Option<Source>, others: Vec<Error>, item: Option<u64>) -> Self {
        Self(Arc::new(Inner { kind, source, others, item, is_reported: AtomicBool::default(), listener: OnceLock::new() }))
    }

    /// Returns the error of an item of a run. Its message names the item.
    pub(crate) fn in_item(&self, item: u64) -> Self {
        let Inner { kind, source, others, .. } = &*self.0;
        let others = others.iter().map(|other| other.in_item(item)).collect();
        Self::of_item(kind.clone(), source.clone(), others, Some(item))
    }

    /// Turns the error of a node of a step into the error of a scope's operation in a batch. `place` is the
    /// end of a sentence in the message.
    pub(crate) fn in_batch(&self, operation: Name, (batch, batches): (u64, u64), place: String) -> Self {
        let kind = match &*self.0.kind {
            Kind::Failed { .. } => Kind::BatchFailed { operation, batch, batches, place },
            Kind::Panicked { message, .. } => Kind::BatchPanicked { operation, batch, batches, place, message: message.clone() },
            _ => return self.clone(),
        };
        Self::of(Arc::new(kind), self.0.source.clone(), Vec::new())
    }

    /// Returns the error of an inner graph. Its path becomes part of the name of the node.
    pub(crate) fn within(self, path: String) -> Self {
        let node = self.node().map(|node| format!("{path}/{node}").into());
        Kind::Within { path, node, fault: self }.into()
    }

    /// Returns the first of `causes`, which lists the others. Returns None if there is no cause.
    pub(crate) fn first_of(causes: Vec<Error>) -> Option<Self> {
        let mut causes = causes.into_iter();
        let first = causes.next()?;
        let others: Vec<Error> = causes.collect();
        if others.is_empty() {
            return Some(first);
        }
        // A future of the node may hold the first cause too. Its error must not list the others.
        let Inner { kind, source, .. } = &*first.0;
        Some(Self::of(kind.clone(), source.clone(), others))
    }

    /// Marks the origin of this error as reported.
    pub(crate) fn note_reported(&self) {
        // ORDERING: Relaxed: the `Arc`'s count of clones orders this store before the drop of the last clone,
        // which reads it.
        self.origin().0.is_reported.store(true, Ordering::Relaxed);
    }

    /// Sets the listener, which gets the error if its last clone is dropped unreported. Only the first call
    /// has an effect.
    pub(crate) fn report_at_last(&self, listener: Weak<dyn Listener>) {
        let _ = self.0.listener.set(listener);
    }

    /// Returns true if the run was cancelled: by [`Run::cancel`](crate::Run::cancel), by dropping it, or at
    /// its deadline.
    pub fn is_cancelled(&self) -> bool {
        matches!(*self.0.kind, Kind::Cancelled | Kind::PastDeadline)
    }

    /// Returns true if the run, call or flow was cancelled because it was not over at its deadline
    /// ([`Run::deadline`](crate::Run::deadline)).
    pub fn is_past_deadline(&self) -> bool {
        matches!(*self.0.kind, Kind::PastDeadline)
    }

    /// Returns true if the executor was shut down or dropped before the run or operation ended, or was
    /// draining before it began. Also true in a child process that was forked from that of the executor's
    /// threads.
    pub fn is_shut_down(&self) -> bool {
        matches!(*self.0.kind, Kind::ShutDown | Kind::Draining | Kind::Forked)
    }

    /// Returns true if a limit was reached: the executor's of runs, or the engine's or flow's of operations.
    pub fn is_busy(&self) -> bool {
        matches!(*self.0.kind, Kind::Busy { .. } | Kind::EngineBusy { .. } | Kind::FlowBusy { .. })
    }

    /// Returns true if a device, or the host, did not have enough memory. Also true for the error of a run
    /// whose node failed because of that.
    pub fn is_out_of_memory(&self) -> bool {
        use Kind::*;
        matches!(
            *self.0.kind,
            OutOfMemory { .. } | NoPinnedMemory { .. } | NoRunMemory { .. } | NoScopeMemory { .. } | Driver { code: 2, .. }
        ) || self.cause().is_some_and(Error::is_out_of_memory)
    }

    /// Returns true if a wait is an error because of where it is awaited.
    pub(crate) fn is_of_place(&self) -> bool {
        use Kind::*;
        matches!(*self.0.kind, WaitsForAllInside | WaitsInTask | DrainsInside | InsideNode | Forked)
    }

    /// Returns true if a scope does not stream as a whole.
    pub(crate) fn is_not_streaming(&self) -> bool {
        matches!(*self.0.kind, Kind::NotStreaming { .. })
    }

    /// Returns true if a device was lost: a fault of one of its kernels ended all work on it. Also true for
    /// the error of a node that failed because of that.
    pub fn is_device_lost(&self) -> bool {
        matches!(*self.0.kind, Kind::DeviceLost { .. }) || self.cause().is_some_and(Error::is_device_lost)
    }

    /// Returns true if the stream sanitizer has found a race: two nodes or operations use a buffer, and
    /// nothing orders them. Also true for the error of the node that failed because of that. The guide
    /// [`testing`](crate::guide::testing) lists the checks.
    pub fn is_race(&self) -> bool {
        matches!(*self.0.kind, Kind::Race(_)) || self.cause().is_some_and(Error::is_race)
    }

    /// Returns true if a world of ranks is broken: a rank has left it, has died or hangs, or the ranks
    /// disagree about what they exchange. Also true for the error of a node that failed because of that.
    ///
    /// A broken world stays broken. Work without communication goes on, and a new world can be made.
    pub fn is_world_broken(&self) -> bool {
        matches!(*self.0.kind, Kind::World(_)) || self.cause().is_some_and(Error::is_world_broken)
    }

    /// Returns the rank that broke its world, if one rank did.
    pub fn rank(&self) -> Option<u32> {
        match &*self.0.kind {
            Kind::World(fault) => fault.rank(),
            _ => self.cause().and_then(Error::rank),
        }
    }

    /// Returns the variable whose value an operation could not take, because a reader keeps the value. The
    /// operation fails with this error before its body is called, and no body can return it.
    pub(crate) fn kept_variable(&self) -> Option<Cow<'static, str>> {
        if let Kind::VarKept { variable } = &*self.0.kind { Some(variable.clone()) } else { None }
    }

    /// Returns true if an operation did not begin, and a variable that it writes keeps its old value.
    pub(crate) fn leaves_old_value(&self) -> bool {
        matches!(*self.0.kind, Kind::OpNotBegun { leaves_old: true, .. })
    }

    /// Returns the failure of another operation that prevented this one. Otherwise returns this error itself.
    pub(crate) fn origin(&self) -> &Error {
        let mut origin = self;
        while let (Kind::NotRun { .. } | Kind::ResultLost { .. }, Some(cause)) = (&*origin.0.kind, origin.cause()) {
            origin = cause;
        }
        origin
    }

    /// Returns the cause of this error, if it is an error of this library.
    fn cause(&self) -> Option<&Error> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// Returns true if user code panicked: the body of a node, of an operation or of a flow, the source of a
    /// pipeline's items, or a closure that makes a pipeline's states. Also true if an operation replaced or
    /// freed a value whose destructor panicked.
    pub fn is_panic(&self) -> bool {
        use Kind::*;
        let is_drop_panic = |error: &Error| matches!(*error.0.kind, DropPanicked { .. });
        let is_own = |error: &Error| {
            matches!(*error.0.kind, Panicked { .. } | BatchPanicked { .. } | OpPanicked { .. } | FlowPanicked { .. })
        };
        let is_of_items = matches!(*self.0.kind, SourcePanicked { .. } | InitPanicked { .. });
        is_own(self)
            || is_of_items
            || is_drop_panic(self)
            || matches!(*self.0.kind, OpFailed { .. }) && self.cause().is_some_and(is_drop_panic)
    }

    /// Returns true if the node or operation did not run, because one that it depends on failed. Also true if
    /// it ran on a device but its result is lost, because earlier work failed there.
    pub fn is_skipped(&self) -> bool {
        matches!(*self.0.kind, Kind::Skipped { .. } | Kind::NotRun { .. } | Kind::ResultLost { .. })
    }

    /// Returns true if the node did not run, and no failure caused that. It is in an arm that was not taken,
    /// or in a loop that ended before its first iteration. [`Run::node`](crate::Run::node) returns this
    /// error; a run itself never ends with it.
    pub fn is_not_taken(&self) -> bool {
        matches!(*self.0.kind, Kind::NotTaken { .. })
    }

    /// Returns true if the graph, the application description, or the answer of a policy is not valid.
    /// `compile` returns such errors.
    pub fn is_invalid_graph(&self) -> bool {
        use Kind::*;
        matches!(
            *self.0.kind,
            DuplicateName { .. }
                | NoName { .. }
                | DuplicatePort { .. }
                | DuplicateResource { .. }
                | ForeignValue { .. }
                | ForeignUse { .. }
                | ForeignFeed { .. }
                | Cycle { .. }
                | SelfEdge { .. }
                | UnusedNode { .. }
                | NotANode { .. }
                | UnusedInput { .. }
                | TakenTwice { .. }
                | TakenAndRead { .. }
                | TakenAndReadInside { .. }
                | TakeCycle { .. }
                | TakenShared { .. }
                | SharedResult { .. }
                | Limit { .. }
                | Cost { .. }
                | DeviceOrdinal { .. }
                | DeviceTwice { .. }
                | Json { .. }
                | Description { .. }
                | Misspelt { .. }
                | EmptySection { .. }
                | UnknownNodeId { .. }
                | Policy { .. }
                | TakenFromAround { .. }
                | TakenState { .. }
                | InnerPort { .. }
                | IsInner
                | NotJoined { .. }
                | BuildPanicked { .. }
                | Replaced { .. }
                | NotALoop { .. }
                | Body { .. }
                | HeldTwice { .. }
                | ForeignState { .. }
                | ResultTwice { .. }
                | FedFeedback { .. }
                | PortInPipeline { .. }
                | NotFed { .. }
                | OnlyInPipeline { .. }
                | FeedbackPhases { .. }
                | FeedbackForward { .. }
                | PhaseBack { .. }
                | TakenBefore { .. }
                | PhaseRange { .. }
                | TooFewSlots { .. }
                | ItemsApart { .. }
                | NoItemsBefore { .. }
                | ItemCycle { .. }
                | LaterPhase { .. }
                | PhasesApart { .. }
                | NoPhase { .. }
                | NoCapacity { .. }
                | UnknownResource { .. }
                | TimeLimit { .. }
                | DuplicateStore { .. }
                | UnknownStore { .. }
                | Outline { .. }
                | TooLittleMemory { .. }
        ) || matches!(*self.0.kind, Scope { .. } | NotStreaming { .. })
            || matches!(&*self.0.kind, Within { fault, .. } if fault.is_invalid_graph())
    }

    /// Returns true if programs are not a correct plan of their graph.
    /// [`Shape::verify_programs`](crate::graph::Shape::verify_programs) returns such errors.
    pub fn is_invalid_plan(&self) -> bool {
        use Kind::*;
        matches!(
            *self.0.kind,
            NotOrdered { .. }
                | RedundantWait { .. }
                | NoRecord { .. }
                | WaitsForever { .. }
                | Arrivals { .. }
                | RunCount { .. }
                | DeviceCount { .. }
                | Program { .. }
                | ReleasedEarly { .. }
        ) || matches!(&*self.0.kind, Within { fault, .. } if fault.is_invalid_plan())
    }

    /// Returns the name of the node or operation that the error is about, if it is about one. The name of a
    /// node in a loop or branch is its path: `loop/body/node`, `loop/condition/node`, `branch/arm 0/node`.
    /// For a cycle it is one of its nodes. Of a test that failed in [`explore`](crate::explore), it is that
    /// of the test's error.
    pub fn node(&self) -> Option<&str> {
        use Kind::*;
        match &*self.0.kind {
            Failed { node, .. }
            | Panicked { node, .. }
            | Skipped { node, .. }
            | NotTaken { node, .. }
            | Observer { node, .. }
            | SelfEdge { node }
            | BatchFailed { operation: node, .. }
            | BatchPanicked { operation: node, .. }
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
            | BuildPanicked { node }
            | Body { node, .. }
            | NoPhase { node, .. }
            | UnknownResource { node, .. }
            | Undecided { node, .. }
            | TooManyIterations { node, .. }
            | NeedsWorld { node }
            | NotInPipeline { node }
            | NoSuchArm { node, .. } => Some(node),
            Within { node, .. } | Replaced { node, .. } | Policy { node, .. } => node.as_deref(),
            Order { .. } => self.cause().and_then(Self::node),
            HeldTwice { second: node, .. } | PhaseBack { target: node, .. } | FeedbackForward { reader: node, .. } => Some(node),
            PhaseRange { node, .. } | FeedbackPhases { node, .. } | ForeignState { name: node, .. } => Some(node),
            PhasesApart { second: node, .. } | LaterPhase { target: node, .. } => Some(node),
            Cycle { path } | ItemCycle { path } => path.first().map(|node| &**node),
            TakenAndReadInside { reader, .. } => Some(reader),
            TakenState { taker, .. }
            | TakenShared { taker, .. }
            | TakeCycle { taker, .. }
            | TakenBefore { taker, .. }
            | TakenTwice { second: taker, .. } => Some(taker),
            NotOrdered { later, .. } => Some(later),
            ReleasedEarly { reader, .. } => Some(reader),
            DuplicateName { name } | ForeignValue { name } | NotALoop { name } => Some(name),
            OpFailed { operation }
            | OpNotBegun { operation, .. }
            | AndMoreFailed { operation, .. }
            | OpPanicked { operation, .. }
            | NotRun { operation, .. }
            | ResultLost { operation, .. }
            | OpDevice { operation, .. }
            | VarTakenAndRead { operation, .. }
            | WaitsForItself { operation, .. }
            | WaitsForOwnEnd { operation }
            | OpNotJoined { operation }
            | ForeignVar { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Returns the number of the item that the error is about, from 0 on: of a pipeline, or of
    /// [`Executor::run_stream`](crate::Executor::run_stream). Every item counts, also one that its source
    /// gave as an error. None for other errors, and for a cancel or a shutdown.
    pub fn item(&self) -> Option<u64> {
        self.0.item
    }

    /// Returns the nodes of a cycle. The first node comes again at the end.
    pub(crate) fn cycle(&self) -> Option<&[Name]> {
        if let Kind::Cycle { path } = &*self.0.kind { Some(path) } else { None }
    }

    /// Returns the cause of this error, the cause of that cause, and so on.
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
        let listener = self.listener.take().filter(|_| !*self.is_reported.get_mut());
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            let (source, others) = (self.source.take(), mem::take(&mut self.others));
            listener.take(Error::of_item(self.kind.clone(), source, others, self.item));
        }
    }
}

impl Kind {
    /// Makes an error. Not a `From`, because rustc would suggest that for errors of other types.
    pub(crate) fn into(self) -> Error {
        Error::of(Arc::new(self), None, Vec::new())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(item) = self.item() {
            write!(f, "item #{item}: ")?;
        }
        write!(f, "{}", self.0.kind)?;
        // `{:#}` prints the causes on the same line.
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

/// Prints the message, its causes, and the other failures, because `main` and `unwrap` print an error by
/// `Debug`.
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
