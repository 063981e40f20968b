//! Tiles: which operations stream together, and in how much memory.

mod bounds;
mod brute;
#[cfg(feature = "json")]
mod known;
mod meetings;
mod messages;
mod rules;
