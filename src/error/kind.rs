//! The kinds of errors, and their messages.

use std::borrow::Cow;
use std::sync::Arc;

use super::words::{a, between, cycle, fixed, hint, in_flight, list, plural, two, unused};
use super::{Error, PortKind, Race, WorldFault};
use crate::name::Name;

/// The kind of an error. It is private, so that kinds can be added. The predicates of [`Error`] are the
/// public view.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(all(feature = "cuda", feature = "dlpack", feature = "json", feature = "mpi", feature = "nccl")), allow(dead_code))]
pub(crate) enum Kind {
    // A graph that cannot be compiled.
    #[error("two nodes are named '{name}': node names are unique in a graph, rename one")]
    DuplicateName { name: Name },
    #[error("node number {number}, counted from 0, has no name: give it one")]
    NoName { number: u32 },
    #[error("{} named '{name}': rename one", two(*.first, *.second))]
    DuplicatePort { first: PortKind, second: PortKind, name: Name },
    #[error("two stores are named '{store}': rename one")]
    DuplicateStore { store: Name },
    #[error("{place}: there is no store '{store}'; there are {}", list(.known))]
    UnknownStore { place: String, store: String, known: Vec<Name> },
    #[error("{what} {fault}")]
    Outline { what: String, fault: String },
    #[error("the groups need {bytes} bytes with one batch in flight, and may use {limit}: allow {bytes}")]
    TooLittleMemory { bytes: u64, limit: u64 },
    #[error("scope '{scope}': {fault}")]
    Scope { scope: Name, fault: String },
    #[error(
        "scope '{scope}' does not stream as a whole, for {}: `Streaming::relaxed()` would cut it", plural(*.reasons)
    )]
    NotStreaming { scope: Name, reasons: usize },
    #[error("two resources are named '{name}': rename one")]
    DuplicateResource { name: Name },
    #[error(
        "'{name}' uses a value of another graph: read a value only in the graph that made it, or in its inner graphs; let the closure of a loop or branch return what is read outside"
    )]
    ForeignValue { name: Name },
    #[error(
        "{user} a value of another graph: use a value only in the graph that made it; let the closure of a loop or branch return what is used outside"
    )]
    ForeignUse { user: &'static str },
    #[error(
        "feedback '{name}' {}",
        if *is_value { "is fed a value of another graph: feed one of the pipeline's own graph; let the closure of a loop or branch return it" } else { "is of another graph: feed it in the graph that made it" }
    )]
    ForeignFeed { name: Name, is_value: bool },
    #[error("the nodes {} wait for each other in a cycle: remove one of these edges", cycle(.path))]
    Cycle { path: Vec<Name> },
    #[error("node '{node}' has an edge to itself: remove it")]
    SelfEdge { node: Name },
    #[error(
        "nothing reads the value of '{node}': make it an output (in a pipeline: return it from the closure), read it, or let the node return ()"
    )]
    UnusedNode { node: Name },
    #[error("'{node}' communicates between ranks: compile the graph with `Graph::compile_for`, for a world")]
    NeedsWorld { node: Name },
    #[error("'{node}' communicates between ranks, which a pipeline cannot: let the graph of a run do it")]
    NotInPipeline { node: Name },
    #[error("{0}")]
    World(WorldFault),
    #[error("MPI cannot be used: {why}")]
    Mpi { why: String },
    #[error("NCCL cannot be used: {why}")]
    Nccl { why: String },
    #[error("{}, or remove it", unused(*.kind, .name))]
    UnusedInput { kind: PortKind, name: Name },
    #[error("'{name}' is {}, not a node: it has no backend, command, cost or phase, and it waits for nothing", a(*.kind))]
    NotANode { kind: PortKind, name: Name },
    #[error("'{first}' and '{second}' both take {value} by value: only one node can, let the other read it by reference")]
    TakenTwice { value: String, first: Name, second: Name },
    #[error("'{node}' takes {value} by value and reads it too: read the taken value instead")]
    TakenAndRead { value: String, node: Name },
    #[error(
        "'{taker}' takes {value} by value, so it comes after '{reader}', which reads it too: that closes the cycle {}. Let '{taker}' read {value} by reference, or '{reader}' not wait for '{taker}'",
        cycle(.path)
    )]
    TakeCycle { value: String, taker: Name, reader: Name, path: Vec<Name> },
    #[error(
        "'{control}' takes {value} by value, and '{reader}' in it reads it too: let '{reader}' read the state that '{control}' makes of it"
    )]
    TakenAndReadInside { control: Name, value: String, reader: Name },
    #[error("'{taker}' takes {value} by value, but {sharer} shares it as an Arc: read it by reference instead")]
    TakenShared { value: String, taker: Name, sharer: String },
    #[error("{value} is a result of the pipeline, which is moved out, but {why}: return a value that a node makes of it")]
    SharedResult { value: String, why: String },
    #[error(
        "'{node}' takes {value}, which belongs to a graph around it: read it by reference, or make it a state of the loop or branch"
    )]
    TakenFromAround { value: String, node: Name },
    #[error("'{taker}' takes {value} by value, but {why}")]
    TakenState { value: String, taker: Name, why: String },
    #[error(
        "{kind} '{name}' is declared in an inner graph, which has none: {}",
        if matches!(kind, PortKind::State | PortKind::Feedback) { "declare it in the pipeline's own graph" } else { "read the values of the graph around it, and return results from the closure" }
    )]
    InnerPort { kind: PortKind, name: Name },
    #[error(
        "state '{state}' is held by '{first}' and by '{second}': one node holds a state, let the other read a value that the first makes of it"
    )]
    HeldTwice { state: Name, first: Name, second: Name },
    #[error(
        "'{name}' holds state '{state}' of another graph: the node that holds a state is in the pipeline's own graph, and in no loop or branch"
    )]
    ForeignState { name: Name, state: Name },
    #[error(
        "{value} {}",
        if *is_feedback { "cannot be a result, because it stays: return a value that a node makes of it" } else { "is a result of the pipeline twice: return it once, and clone what you need" }
    )]
    ResultTwice { value: String, is_feedback: bool },
    #[error("{value} cannot be fed to another: feed a value that a node makes of it")]
    FedFeedback { value: String },
    #[error(
        "{} '{name}' in the graph of a pipeline: {}",
        if *is_output { "output" } else { "input" },
        if *is_output { "return the value from the closure instead" } else { "items come in as the closure's second argument" }
    )]
    PortInPipeline { name: Name, is_output: bool },
    #[error("feedback '{name}' has no value: call g.feed(feedback, &value) with the value that a later item reads")]
    NotFed { name: Name },
    #[error("{what} goes from item to item, so it needs a Pipeline: build this graph in Pipeline::new")]
    OnlyInPipeline { what: String },
    #[error(
        "'{node}' reads the feedback '{feedback}' in phase {second}, and '{other}' in phase {first}: read it in one phase, or declare two feedbacks"
    )]
    FeedbackPhases { feedback: Name, node: Name, other: Name, first: u32, second: u32 },
    #[error(
        "feedback '{feedback}' is read by '{reader}' in phase {read}, after its value is made by '{maker}' in phase {made}: read the value itself there, it is of the same item"
    )]
    FeedbackForward { feedback: Name, reader: Name, maker: Name, read: u32, made: u32 },
    #[error(
        "'{target}' is in phase {second} and depends on '{source_node}' in phase {first}, a later one: put '{target}' in phase {first} or later{}",
        if *is_data { format!(", or make the edge feedback (in a pipeline, by g.feedback and g.feed) if '{target}' needs the value of an earlier item") } else { format!(", or '{source_node}' in phase {second} or earlier") }
    )]
    PhaseBack { source_node: Name, target: Name, first: u32, second: u32, is_data: bool },
    #[error(
        "'{taker}' takes {value} by value in phase {takes}, and '{reader}' reads it in phase {reads}, a later one: put '{taker}' in phase {reads} or later, or let it read {value} by reference"
    )]
    TakenBefore { value: String, taker: Name, reader: Name, takes: u32, reads: u32 },
    #[error("node '{node}' is in phase {phase}: phases are from 1 to {max}")]
    PhaseRange { node: Name, phase: u32, max: u32 },
    #[error(
        "in lockstep '{target}' cannot wait for '{source_node}' of {items} item{} before, because it begins then: let it wait for {least} before, or choose Beat::Elastic",
        if *.items == 1 { "" } else { "s" }
    )]
    ItemsApart { source_node: Name, target: Name, items: u32, least: u32 },
    #[error("'{node}' waits for an item 0 items before: give 1 or more, or use `after` for an edge within an item")]
    NoItemsBefore { node: Name },
    #[error("{} too few: {why}", in_flight(*.slots))]
    TooFewSlots { slots: u32, why: String },
    #[error("the source of the items panicked: {message}")]
    SourcePanicked { message: String },
    #[error("the first value of '{name}' could not be made, a panic: {message}")]
    InitPanicked { name: Name, message: String },
    #[error("the source gave an error instead of this item (skip it, and later items follow)")]
    SourceFailed,
    #[error("an inner graph cannot be compiled or cut by itself: compile or cut the graph around it")]
    IsInner,
    #[error("branch '{node}' is not joined: call join()")]
    NotJoined { node: Name },
    #[error("a closure panicked while it built a graph of '{node}': build the whole graph again")]
    BuildPanicked { node: Name },
    #[error("the closure for {of} replaces the graph that it is given: add to that graph, and do not replace it")]
    Replaced { of: String, node: Option<Name> },
    #[error("'{name}' is not a loop: only a loop has a number of iterations")]
    NotALoop { name: Name },
    #[error("node '{node}' {fault}")]
    Body { node: Name, fault: String },
    #[error("in '{path}': {fault}")]
    Within { path: String, node: Option<Name>, fault: Error },
    #[error("{what} is {got}, the limit is {limit}")]
    Limit { what: String, got: usize, limit: usize },
    #[error("the cost of node '{node}' is {cost_us} us: a cost is from 0 to 10^12")]
    Cost { node: Name, cost_us: f64 },
    #[cfg_attr(not(feature = "json"), allow(dead_code))]
    #[error("{place}{fault}")]
    Json { place: String, fault: String },
    #[cfg_attr(not(feature = "json"), allow(dead_code))]
    #[error("{place}: {fault}")]
    Description { place: String, fault: String },
    #[error("{fault}; perhaps because of this: {warning}")]
    Misspelt { fault: Error, warning: String },
    #[error("node '{node}' names device {device}: use ordinals up to {limit}")]
    DeviceOrdinal { node: Name, device: u32, limit: u32 },
    #[error("node '{node}' names device {device} twice: name each of its devices once")]
    DeviceTwice { node: Name, device: u32 },
    #[error("{what} names node number {id}, counted from 0, but the graph has {nodes}: use the ids of this graph")]
    UnknownNodeId { what: String, id: u32, nodes: usize },
    #[error("no path leads {}: name nodes of which one comes after the other", between(.from, .to))]
    EmptySection { from: Vec<String>, to: Vec<String> },
    #[error("policy '{policy}' {fault}")]
    Policy { policy: String, node: Option<Name>, fault: String },

    // Phases of a pipeline.
    #[error(
        "the nodes {} wait for each other in a cycle, for one item: remove one of these edges, or declare the one whose value is of an earlier item as feedback",
        cycle(.path)
    )]
    ItemCycle { path: Vec<Name> },
    #[error(
        "the feedback from '{source_node}' in phase {from} to '{target}' in phase {to} leads to a later phase: put '{target}' in phase {from} or earlier, or make it an ordinary edge"
    )]
    LaterPhase { source_node: Name, from: u32, target: Name, to: u32 },
    #[error("'{first}' and '{second}' are in one phase (together), but {} is fixed for the first and {} for the second: fix the same for both", fixed(.phase), fixed(.other))]
    PhasesApart { first: Name, phase: u32, second: Name, other: u32 },
    #[error(
        "no phase is left for node '{node}': it cannot be in a phase before {low}, which is fixed for '{after}', nor in one after {high}, {why}; change one of these"
    )]
    NoPhase { node: Name, low: u32, after: Name, high: u32, why: String },
    #[error("resource '{resource}' has capacity 0: give it 1 or more")]
    NoCapacity { resource: Name },
    #[error(
        "node '{node}' names resource number {id}, counted from 0, but there are {resources}: use the resources of this work"
    )]
    UnknownResource { node: Name, id: u32, resources: usize },
    #[error("{what} is {us:.0} us, the limit is {limit_us:.0} us: use smaller costs, or fewer nodes, phases or items")]
    TimeLimit { what: &'static str, us: f64, limit_us: f64 },

    // Programs that are not a correct plan of their graph.
    #[error("nothing orders node '{later}' after '{earlier}', which it depends on: its stream needs a wait")]
    NotOrdered { earlier: Name, later: Name },
    #[error("the wait for '{waited}' before node '{node}' can be left out: every edge is ordered without it")]
    RedundantWait { waited: Name, node: Name },
    #[error("node '{node}' waits for point {stream}@{seq}, which no program records")]
    NoRecord { node: Name, stream: u32, seq: u32 },
    #[error("the programs never come to node '{node}': they wait for each other in a cycle")]
    WaitsForever { node: Name },
    #[error("the program of stream {stream} {fault}")]
    Program { stream: u32, fault: String },
    #[error("the gate of phase {phase} counts {counts} arrivals for item {item}, and {come} come")]
    Arrivals { phase: u32, item: u32, counts: u32, come: u32 },
    #[error("node '{node}' is run {count} times: run it once")]
    RunCount { node: Name, count: u32 },
    #[error("node '{node}' spans {devices} devices and is run by {count} streams: it needs one on each of its devices")]
    DeviceCount { node: Name, count: usize, devices: usize },
    #[error("node '{reader}' reads the value of '{value}', which its stream has released before")]
    ReleasedEarly { value: Name, reader: Name },

    #[error("{fault}")]
    Simulation { fault: String },
    #[error("the test failed in order {order}, the first being 0: replay it with Order::Replay(vec!{choices:?}){chosen}")]
    Order { order: u64, choices: Vec<u32>, chosen: String },

    // A run that cannot start.
    #[error("the plan has no {what} named '{name}'; it has {}", list(.known))]
    UnknownPort { what: &'static str, name: String, known: Vec<Name> },
    #[error("input '{name}' was not given: add it to inputs! {{ \"{name}\" => ... }}")]
    MissingInput { name: Name },
    #[error("input '{name}' was given twice: give it once")]
    InputTwice { name: String },
    #[error("input '{name}' has the type `{expected}`, but a `{given}` was given: convert it to `{expected}`")]
    InputType { name: Name, expected: &'static str, given: &'static str },
    #[error("input '{name}' is taken by value by node '{taker}': give it by value, in a flow's call as take(&var)")]
    InputShared { name: Name, taker: Name },
    #[error("there is no node named '{name}'{}", hint(.near, .some, *.nodes))]
    UnknownNode { name: String, near: Option<Name>, some: Vec<Name>, nodes: usize },
    #[error(
        "the executor has no room for another run: at most {max} are in flight, and runs that wait come first; await some of them, or raise max_in_flight"
    )]
    Busy { max: usize },
    #[error("the executor was shut down or dropped: keep it in a variable until its runs have ended")]
    ShutDown,
    #[error("work still uses a buffer of {device}: export an output of a run that has ended")]
    BufferInUse { device: String },
    #[error("a buffer of a simulated device cannot be exported: run the graph on a host or a GPU")]
    BufferSimulated,
    #[error("the call of `lend` has returned, so its data cannot be read any more: await the run inside of its closure")]
    LendEnded,
    #[error(
        "the executor was built before this process was forked, and its threads are in the parent only: build one here, after the fork"
    )]
    Forked,
    #[error(
        "the pending operations cannot be inspected: the system has refused `membarrier` since the executor was built; allow it, or call `Engine::blocked` before"
    )]
    NoBarrier,
    #[error("a drain that is awaited inside of a node, operation or flow of its executor would never end: await it outside")]
    DrainsInside,
    #[error("waiting for an executor from inside one of its own nodes would never end: wait outside of the graph")]
    InsideNode,
    #[error(
        "a task or an observer waits for a run, a flow or an operation of its own executor, which may never end: wait in a future (`Graph::future`, `Op::future`, a flow) or outside, or run it on another executor"
    )]
    WaitsInTask,
    #[error("{what} must be {must}, not {got}")]
    Setting { what: &'static str, must: &'static str, got: usize },
    #[error(
        "the operating system refused to start a thread of the executor: use fewer workers, or raise the limit of threads (ulimit -u)"
    )]
    Thread,

    // A run that ended badly.
    #[error("node '{node}' failed on {stream} of {device}")]
    Failed { node: Name, stream: String, device: String },
    #[error("node '{node}' panicked on {stream} of {device}: {message}")]
    Panicked { node: Name, stream: String, device: String, message: String },
    #[error("operation '{operation}' failed in batch {batch} of {batches}{place}")]
    BatchFailed { operation: Name, batch: u64, batches: u64, place: String },
    #[error("operation '{operation}' panicked in batch {batch} of {batches}{place}: {message}")]
    BatchPanicked { operation: Name, batch: u64, batches: u64, place: String, message: String },
    #[error("node '{node}' did not run, because '{because}', which comes before it, failed")]
    Skipped { node: Name, because: Name },
    #[error(
        "node '{node}' did not run, though nothing failed before it: {why}; if it need not run, check `Error::is_not_taken`, or await the loop or branch"
    )]
    NotTaken { node: Name, why: String },
    #[error(
        "the condition of loop '{node}' is neither true nor false after {count} iterations: it compares NaN; find out why, or compare in a task of your own"
    )]
    Undecided { node: Name, count: u64 },
    #[error("loop '{node}' would go on after {max} iterations: raise its max_iterations, or find out why it does not end")]
    TooManyIterations { node: Name, max: u64 },
    #[error("branch '{node}' has {arms} arm{}, counted from 0, but its selector is {selector}: select one of them, or none by -1 or None", if *.arms == 1 { "" } else { "s" })]
    NoSuchArm { node: Name, selector: i64, arms: usize },
    #[error("the observer panicked at '{node}': {message}")]
    Observer { node: Name, message: String },
    #[error("the run or flow was cancelled")]
    Cancelled,
    #[error("the executor is draining: it ends what has begun, and begins nothing else; use another executor")]
    Draining,
    #[error("the run or flow was cancelled, because it was not over at its deadline: give it more time, or less to do")]
    PastDeadline,

    // Operations on variables.
    #[error("operation '{operation}' failed")]
    OpFailed { operation: Cow<'static, str> },
    #[error("operation '{operation}' panicked: {message}")]
    OpPanicked { operation: Cow<'static, str>, message: String },
    #[error(
        "operation '{operation}' did not begin, and its variables are unchanged: a reader outside of the engine still holds the value of '{variable}', which the operation takes; drop that value first, or read the variable by reference"
    )]
    OpNotBegun { operation: Cow<'static, str>, variable: Cow<'static, str>, leaves_old: bool },
    #[error("operation '{operation}' did not run, because it reads '{variable}', which '{because}' has failed to write")]
    NotRun { operation: Cow<'static, str>, variable: Cow<'static, str>, because: String },
    #[error("operation '{operation}' has no valid result, because '{because}', from which it reads, failed on the device")]
    ResultLost { operation: Cow<'static, str>, because: String },
    #[error("variable '{variable}' has no value: nothing has written it, or an operation took it and wrote none; write it first")]
    VarEmpty { variable: Cow<'static, str> },
    /// Internal: the operation that takes the variable turns this error into `OpNotBegun`.
    #[error("variable '{variable}' cannot be taken: a reader outside of the engine keeps its value")]
    VarKept { variable: Cow<'static, str> },
    #[error("operation '{operation}' takes '{variable}' and reads it too: read the taken value instead")]
    VarTakenAndRead { operation: Cow<'static, str>, variable: Cow<'static, str> },
    #[error(
        "operation '{operation}' uses '{variable}', a variable of another engine: push it to that engine (from a flow that `Engine::flow` made), or read the value and pass that"
    )]
    ForeignVar { operation: Cow<'static, str>, variable: Cow<'static, str> },
    #[error(
        "operation '{operation}' is for device {device}, counted from 0, but the executor has {count}: use a stream of another device"
    )]
    OpDevice { operation: Cow<'static, str>, device: u32, count: usize },
    #[error("dropping the value of '{variable}' panicked: {message}")]
    DropPanicked { variable: Cow<'static, str>, message: String },
    #[error("values returned: {got}, variables to write: {wanted}; return one value for each variable")]
    ValueCount { got: usize, wanted: usize },
    #[error(
        "operation '{operation}' failed, and {more} later failures were lost: an engine keeps {kept} until `idle` reports them, so await it more often"
    )]
    AndMoreFailed { operation: Cow<'static, str>, more: u64, kept: usize },
    #[error("the engine already has {max} operations pending: await some of them, or raise max_pending")]
    EngineBusy { max: usize },
    #[error(
        "operation '{operation}' waits for itself: it awaits '{awaited}', which comes behind its use of '{variable}'; await that outside of the operation"
    )]
    WaitsForItself { operation: Cow<'static, str>, awaited: Cow<'static, str>, variable: Cow<'static, str> },
    #[error(
        "operation '{operation}' is asynchronous, or a kernel for a device, and cannot be joined with others: push it by itself"
    )]
    OpNotJoined { operation: Cow<'static, str> },
    #[error("operation '{operation}' waits for itself: it awaits its own end; await that outside of the operation")]
    WaitsForOwnEnd { operation: Cow<'static, str> },
    #[error("the flow has {max} operations pending: let it wait for one of their values before it pushes more")]
    FlowBusy { max: u64 },
    #[error("the flow failed")]
    FlowFailed,
    #[error("the flow panicked: {message}")]
    FlowPanicked { message: String },
    #[error(
        "an operation that is not asynchronous, or its observer, waits for another one of its engine, which may never end: make it an `Op::future` and await in that, or wait outside"
    )]
    WaitsInside,
    #[error("an operation waits until its engine is idle, but is itself pending there: wait outside of it")]
    WaitsForAllInside,
    #[error(
        "the engine already has {max} operations pending, and inside of one of them there may never be room for more: use `try_push`, push outside, or raise max_pending"
    )]
    WaitsForRoomInside { max: usize },

    // Devices and kernels.
    #[error("{device} has no {bytes} bytes of memory left: use smaller buffers, or fewer runs at once")]
    OutOfMemory { bytes: usize, device: String },
    #[error(
        "the host has no {bytes} bytes of page-locked memory left for {device}: copy less at once, run fewer at once, or raise the limit of locked memory (ulimit -l)"
    )]
    NoPinnedMemory { bytes: usize, device: String },
    #[error(
        "the host has no {bytes} bytes of memory left for the values of a run: put large values into boxes, or run fewer at once"
    )]
    NoRunMemory { bytes: usize },
    #[error("the host has no {bytes} bytes of memory left for {of} of scope '{scope}': {instead}, or run fewer at once")]
    NoScopeMemory { scope: Name, of: String, bytes: u64, instead: &'static str },
    #[error("kernel '{kernel}' is launched without a thread: grid {grid:?}, block {block:?}; each number must be 1 or more")]
    NoThreads { kernel: Arc<str>, grid: [u32; 3], block: [u32; 3] },
    #[error("{what} has {got} elements, not {wanted}")]
    BufferLength { what: &'static str, got: usize, wanted: usize },
    #[error(
        "a buffer of {buffer} is used on a stream of {stream}: fetch it here (DeviceStream::fetch); between a device and a host, add nodes that download and upload it"
    )]
    ForeignBuffer { buffer: String, stream: String },
    #[error("no CUDA driver: {why}. Install NVIDIA's driver, or use an executor on the host device")]
    NoDriver { why: String },
    #[error("the CUDA driver is too old: it has no {symbol}. Update it to one for CUDA 12 or later")]
    OldDriver { symbol: String },
    #[error("there is no CUDA device {ordinal}: this machine has {count}")]
    NoDevice { ordinal: u32, count: u32 },
    #[error("CUDA device {ordinal} has no {lacks}, which this library needs")]
    OldDevice { ordinal: u32, lacks: &'static str },
    #[error("{device} {fault}")]
    Completion { device: String, fault: String },
    #[error(
        "there is no device {device}, counted from 0: the executor has {count}; give it more (Executor::builder().cuda(&[..])), or name another device"
    )]
    NoSuchDevice { device: u32, count: usize },
    #[error("it was not submitted, because earlier work on its device was refused")]
    NotBehind,
    #[error("{0}")]
    Race(Box<Race>),
    #[error("the CUDA driver answered {name} ({code})")]
    Driver { code: u32, name: Arc<str> },
    #[error("{device} was lost: {name} ({code}). Make a new executor in a new process")]
    DeviceLost { device: String, code: u32, name: Arc<str> },
    #[error("kernel '{kernel}' cannot be loaded")]
    KernelCode { kernel: Arc<str> },
    #[error("{why}")]
    Compiler { why: String },
    #[error("kernel '{kernel}' has no twin, so a host cannot run it: give it one with Kernel::twin, or use a CUDA device")]
    NoTwin { kernel: Arc<str> },

    // Outputs.
    #[error("output '{name}' has the type `{expected}`, not `{asked}`: ask for `{expected}`")]
    OutputType { name: String, expected: &'static str, asked: &'static str },
    #[error("a future was polled again after it was ready: keep what the first await returned")]
    Spent,
    #[error("output '{name}' was already taken: keep the value of the first take")]
    OutputTaken { name: String },
    #[error(
        "output '{name}' is made on rank {rank}, where the run returns it: take it there, or let a node without a rank make it"
    )]
    OutputElsewhere { name: Name, rank: u32 },
}
