//! Plans over ranks: which nodes run on which rank, what they exchange and in which order, and the proof that
//! no rank waits for ever.
//!
//! [`Graph::compile_for`](crate::Graph::compile_for) uses it for the ranks of a
//! [`World`](crate::comm::World).
//
// WHO, AMONG RANKS. Lives here: whether values are the same on all ranks, the order of collectives, the pairs
// of sends and receives, and the checks of all this. Never here: a thread, a clock, a value, an engine.

mod balanced;
mod blocks;
mod joined;
mod order;
mod pairs;
mod same;
mod schedules;
mod split;
mod units;
mod waits;
mod whole;

pub use balanced::Balanced;
pub use blocks::{Block, Blocks, Partition};
pub(crate) use joined::{Exchanged, Joined, On, What};
pub(crate) use order::{Order, Position};
pub(crate) use pairs::{check_pairs, there_are};
pub(crate) use same::check_same;
pub use schedules::RankSchedules;
pub(crate) use schedules::check_count;
pub(crate) use split::{Added, Reach, Transfer, Transfers, check_places};
pub(crate) use units::Unit;
pub(crate) use waits::Starts;
