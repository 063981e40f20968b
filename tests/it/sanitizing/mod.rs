//! The stream sanitizer: races of buffers that go from node to node behind the graph's back.

mod graphs;
pub(crate) mod random;
pub(crate) mod sharing;
