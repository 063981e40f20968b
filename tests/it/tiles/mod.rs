//! Tiles: which operations stream together, and in how much memory.

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
