//! Tiles: the operations that stream together, and their memory.

mod bounds;
mod brute;
mod diagonals;
#[cfg(feature = "json")]
mod known;
mod longest;
mod meetings;
mod messages;
mod names;
mod rules;
