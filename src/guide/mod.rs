//! Guides, with one subject each. Their code is tested.
//!
//! Start with the program on the [first page](crate), then read [`graphs`] and [`bodies`].
//!
//! | guide | subject |
//! |---|---|
//! | [`graphs`] | the nouns: graph, node, value, policy, plan, run, executor |
//! | [`bodies`] | what the closures of nodes and operations receive, and what they return |
//! | [`endings`] | what happens when a node fails, a run is dropped, an executor is full or ends, a process forks |
//! | [`futures`] | where futures run, and whether tokio's timers and sockets work there |
//! | [`loops`] | loops and branches as nodes of a graph |
//! | [`items`] | a graph over a stream of items: phases, states, feedback |
//! | [`arrays`] | array programs on more data than memory: stores, tiles, streaming |
//! | [`gpus`] | kernels, buffers and streams; what differs between a host and a GPU |
//! | [`data`] | borrowed data; arrays and buffers as types of `ndarray`, candle, DLPack and cudarc |
//! | [`variables`] | engines: order that follows from what operations read and write |
//! | [`flows`] | control flow as async code; which of graph, pipeline, loop, engine and flow to choose |
//! | [`ranks`] | more than one machine: ranks that exchange values, in one process or over MPI |
//! | [`services`] | deadlines, priorities, load shedding, `tower`, the end of a server |
//! | [`observing`] | pictures, traces, logs and metrics of what runs |
//! | [`simulation`] | all orders of a graph, virtual time, pictures, and the tool |
//! | [`testing`] | tests of your concurrent code: all orders, replays, faults, wakers, loom |
//
// GUIDES: text for users, beside the API. Lives here: one Markdown file for each subject, whose code is
// tested. Never here: code of the library.

#[doc = include_str!("graphs.md")]
pub mod graphs {}

#[doc = include_str!("bodies.md")]
pub mod bodies {}

#[doc = include_str!("endings.md")]
pub mod endings {}

#[doc = include_str!("futures.md")]
pub mod futures {}

#[doc = include_str!("items.md")]
pub mod items {}

#[doc = include_str!("arrays.md")]
pub mod arrays {}

#[doc = include_str!("loops.md")]
pub mod loops {}

#[doc = include_str!("gpus.md")]
pub mod gpus {}

#[doc = include_str!("data.md")]
pub mod data {}

#[doc = include_str!("variables.md")]
pub mod variables {}

#[doc = include_str!("flows.md")]
pub mod flows {}

#[doc = include_str!("ranks.md")]
pub mod ranks {}

#[doc = include_str!("services.md")]
pub mod services {}

#[doc = include_str!("observing.md")]
pub mod observing {}

#[doc = include_str!("simulation.md")]
pub mod simulation {}

#[doc = include_str!("testing.md")]
pub mod testing {}
