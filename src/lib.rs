#![doc = include_str!("../README.md")]

mod device;
mod engine;
mod error;
mod exec;
mod flow;
mod graph;
mod plan;
mod run;
mod runtime;
mod sim;
mod sync;
mod value;

#[cfg(test)]
#[path = "../loom-tests/mod.rs"]
mod loom_tests;

#[cfg(feature = "cuda")]
pub use device::cuda::{Completion, RawStream};
pub use device::host::HostStream;
pub use device::kernels;
pub use device::sim::Order;
pub use device::{Buffer, DeviceStream, Element, HostBuffer, In, Kernel, KernelParam, KernelStream, Launch, Out, Params};
pub use engine::{
    Bulk, Engine, EngineBuilder, Fetch, Op, OpFn, OpFutureFn, OpKernelFn, OpStream, Push, Pushed, Put, Reads, TakeVar, Use, Var,
    VarRead, VarWait, Writes,
};
pub use error::{BoxError, Error, Result};
pub use exec::{Executor, ExecutorBuilder, Shutdown, explore};
pub use flow::{Arg, Args, Flow, FlowRun, Function, Get, Ports};
pub use graph::{
    Above, Backend, Bodies, Branch, COST_US_MAX, Condition, Control, DEVICE_MAX, Each, Edge, EdgeKind, FutureFn, Given, Graph,
    Holds, KernelFn, Many, Memory, NAME_BYTES_MAX, NODES_MAX, NodeId, NodeMut, NodeShape, OneState, Own, PORTS_MAX, Param, Read,
    Role, Select, Shape, Source, Sources, States, Takable, Take, TaskFn, Times, Value, above, take, times,
};
pub use plan::{
    Assignment, CriticalPath, InnerSchedule, MinStreams, PerBackend, PerOperator, Placement, Plan, Point, Policy, Ranked,
    ReadySet, Schedule, Single, Span, Step, StreamKind,
};
pub use run::{Inputs, NodeFuture, Outputs, Run};
#[cfg(feature = "cuda")]
pub use runtime::Pace;
pub use runtime::{Canceller, Idle, Launched, NodeSpan, Observer, Timeline, TimelineSpan};
pub use sim::{Ending, Explored, Faults, Race, SimEvent, SimLog, Simulation, Slots, Touch, TouchKind};
