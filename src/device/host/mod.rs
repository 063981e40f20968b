//! The host device: streams are programs that run as coroutines on a small pool of workers, or in the
//! caller's `poll`.
//!
//! A program that waits is parked: it is in no queue, and costs a few words of the run's memory instead of a
//! thread. The thread that completes the awaited work queues a [`Ticket`] for it. So thousands of streams run
//! on two threads.
//!
//! See README.md beside this file for the deque, the sleep and the end of workers.

mod barrier;
mod cost;
mod deque;
mod origin;
mod pool;
mod searcher;
mod sleep;
mod slice;
mod stopwatch;
mod stream;
mod ticket;
#[cfg(any(test, not(anabranch_loom)))]
mod try_lock;
mod worker;

pub(crate) use barrier::Barrier;
pub(crate) use cost::{CHEAP_NS, Cost};
pub(crate) use deque::Deque;
pub(crate) use origin::Origin;
pub(crate) use pool::{Around, Entry, Pool, Resume, SLOTS_MAX};
pub(crate) use slice::{Pace, Slice};
pub(crate) use stopwatch::Stopwatch;
pub use stream::HostStream;
pub(crate) use ticket::{Progress, Queue, Ticket, TicketOrigin};
#[cfg(any(test, not(anabranch_loom)))]
pub(crate) use try_lock::TryLock;
pub(crate) use worker::{Alone, Tickets, aside, at_steps_of, is_aside, is_at_a_step};
#[cfg(test)]
pub(crate) use {searcher::Searcher, sleep::Sleep};
