//! The integration tests: one module per subject.
#![allow(missing_docs, clippy::unwrap_used)]
mod bounds;
mod cancelling;
mod endings;
mod failures;
mod graphs;
mod mistakes;
mod policies;
mod random;
mod runtimes;
mod sizes;
mod smoke;
mod support;
mod tidy;
mod values;
mod wakers;
mod waking;
