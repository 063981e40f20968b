#![allow(missing_docs, dead_code, unused_imports, clippy::all)]
#[path = "it/dice.rs"]
mod dice;
#[path = "it/pipe/mod.rs"]
mod pipe;
#[path = "it/support.rs"]
mod support;
