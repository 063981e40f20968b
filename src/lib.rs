#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "json")]
pub mod app;
pub mod comm;
pub mod device;
mod draw;
pub mod engine;
pub mod error;
pub mod exec;
pub mod flow;
pub mod graph;
pub mod guide;
mod name;
pub mod phases;
pub mod pipe;
pub mod plan;
mod ranks;
pub mod run;
mod runtime;
pub mod scope;
pub mod sim;
mod sync;
pub mod tiles;
mod value;

#[cfg(test)]
#[path = "../loom-tests/mod.rs"]
mod loom_tests;

/// Policies. A policy assigns a device stream to each node.
///
/// [`Ranked`] is the default. `docs/policies.md` in the repository compares the policies. A type of your own
/// is a policy if it implements [`Policy`](policy::Policy), which returns an
/// [`Assignment`](policy::Assignment). [`Placement`](policy::Placement) is the choice of streams in an
/// engine, which learns of its operations one by one.
///
/// ```
/// use anabranch::policy::{CriticalPath, Single};
/// # use anabranch::Graph;
/// # let mut g = Graph::new();
/// # let x = g.task("x", (), || 1);
/// # g.output("x", &x);
/// let plan = g.compile_with(&CriticalPath::default().streams(3))?;
/// let in_order = g.compile_with(&Single)?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub mod policy {
    pub use crate::plan::policies::{
        Assignment, CriticalPath, MinStreams, PerBackend, PerOperator, Placement, Policy, Ranked, ReadySet, Single,
    };
}

/// Items for NVIDIA GPUs only: how a GPU signals the host that work is done, and the CUDA stream of a
/// [`DeviceStream`], for libraries that enqueue work on it.
///
/// [`Executor::cuda`] makes an executor on a GPU.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::device::cuda::{Completion, RawStream, SelfTest, Trial, TrialOutcome, self_test};
    pub use crate::runtime::Pace;
    #[cfg(doc)]
    use crate::{DeviceStream, Executor};
}

#[doc(inline)]
pub use device::{Buffer, DeviceStream, HostBuffer, HostStream};
#[doc(inline)]
pub use engine::{Engine, Op, Var};
#[doc(inline)]
pub use error::{BoxError, Error, Result};
#[doc(inline)]
pub use exec::{Executor, Timeline, explore};
#[doc(inline)]
pub use flow::{Flow, Function};
#[doc(inline)]
pub use graph::{Graph, Value, take};
#[doc(inline)]
pub use name::Name;
#[doc(inline)]
pub use pipe::Pipeline;
#[doc(inline)]
pub use plan::Plan;
#[doc(inline)]
pub use policy::Ranked;
#[doc(inline)]
pub use run::{Inputs, Outputs, Run};
