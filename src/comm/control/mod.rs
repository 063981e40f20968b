//! The control connection: how processes find out that another one has died, hangs, or has broken a world.
//!
//! Rank 0 has a connection to every other rank. Each side sends a beat every twentieth of the deadline. A
//! rank whose connection ends has died; a rank that sends nothing for half of the deadline hangs. Rank 0
//! tells all others what it finds, and what a rank tells it. If rank 0 itself dies, all others see it.
//!
//! ```text
//!  rank 2 dies:   rank 0 reads the end of its connection ─▶ breaks its worlds, tells ranks 1 and 3
//!  rank 0 hangs:  ranks 1, 2, 3 hear nothing for half of the deadline ─▶ each breaks its worlds
//!  rank 3 has abandoned a run: it breaks its world, tells rank 0 ─▶ rank 0 breaks its own, tells ranks 1, 2
//! ```

mod link;
mod meet;
mod message;
mod rest;
mod waits;
mod watch;
mod worlds;

pub(super) use meet::{Host, Invitation};
pub(super) use waits::Waits;
pub(super) use watch::Control;
