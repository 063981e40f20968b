//! The stream sanitizer: races on buffers that nodes share without the graph's knowledge.

mod graphs;
pub(crate) mod random;
pub(crate) mod sharing;
