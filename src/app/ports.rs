//! The ports of the original framework as a model: which message each receive gets, and which messages are
//! lost. The capacities that this library computes, and the descriptions that it refuses, rest on it.
//!
//! A sender sends message `n` in iteration `n` of the schedule. The receiver of a connection that crosses
//! `offset` phases is due message `n - offset` in iteration `n`. A receive takes the oldest message from the
//! queue. If that message is not due yet, the receiver keeps it and returns it in the iteration in which it
//! is.

use std::collections::VecDeque;

/// What a port does with a message that finds the queue full, and whether it has a queue at all.
///
/// ```
/// use anabranch::app::ports::{Mode, Order, Port};
///
/// let order = Order::ProducerFirst;
/// let mut port = Port { offset: 1, order, mode: Mode::Fifo, capacity: 1, reuse: false };
/// // The queue is too small: a send fails, or messages are dropped.
/// assert_eq!(port.simulate(9).producer_error_at, Some(3));
/// port.mode = Mode::Mailbox;
/// assert_eq!(port.simulate(9).dropped[0], 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The send fails.
    #[default]
    Fifo,
    /// The oldest message is dropped.
    Mailbox,
    /// There is one slot, which sender and receiver share. A send overwrites it, a receive leaves it as it
    /// is.
    Singleton,
}

/// Which of the two comes first within an iteration of the schedule.
///
/// ```
/// use anabranch::app::ports::{Order, capacity_needed};
///
/// // The consumer is in the next phase. If it comes first, it empties the slot for the producer.
/// assert_eq!(capacity_needed(1, Order::ConsumerFirst), 1);
/// assert_eq!(capacity_needed(1, Order::ProducerFirst), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The producer sends before the consumer receives.
    #[default]
    ProducerFirst,
    /// The consumer receives before the producer sends.
    ConsumerFirst,
}

/// One connection of the original framework.
///
/// ```
/// use anabranch::app::ports::{Mode, Order, Port};
///
/// let port = Port { offset: 2, order: Order::ProducerFirst, mode: Mode::Fifo, capacity: 3, reuse: false };
/// assert_eq!(port.first_lost(100), None);
/// assert!(Port { capacity: 1, ..port }.first_lost(100).is_some());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// How many phases the consumer is behind the producer.
    pub offset: u32,
    /// Which comes first within an iteration.
    pub order: Order,
    /// What a full queue does.
    pub mode: Mode,
    /// How many messages the queue holds. A singleton has one slot, whatever this is.
    pub capacity: u32,
    /// Whether a receive that finds no message returns the last one again.
    pub reuse: bool,
}

/// What happened on a connection.
///
/// ```
/// use anabranch::app::ports::{Mode, Order, Port};
///
/// # let port = Port { offset: 1, order: Order::ProducerFirst, mode: Mode::Fifo, capacity: 2, reuse: false };
/// // The consumer is one phase behind.
/// let traffic = port.simulate(3);
/// assert_eq!(traffic.delivered, [None, Some(1), Some(2)]);
/// assert!(traffic.dropped.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// The message that the receive of each iteration got, from iteration 1 on.
    pub delivered: Vec<Option<u64>>,
    /// The messages that were dropped before a receive got them.
    pub dropped: Vec<u64>,
    /// The iteration in which a send found the queue full, which ends the traffic.
    pub producer_error_at: Option<u64>,
}

/// Returns the smallest capacity with which no message of a connection is lost: one more than the phases it
/// crosses, and one less than that if the consumer comes first.
///
/// ```
/// use anabranch::app::ports::{Mode, Order, Port, capacity_needed};
///
/// let (order, mode, reuse) = (Order::ProducerFirst, Mode::Fifo, false);
/// let port = Port { offset: 4, order, mode, capacity: capacity_needed(4, order), reuse };
/// assert_eq!((port.capacity, port.first_lost(100)), (5, None));
/// ```
pub fn capacity_needed(offset: u32, order: Order) -> u32 {
    match order {
        Order::ProducerFirst => offset.saturating_add(1),
        Order::ConsumerFirst => offset.max(1),
    }
}

impl Port {
    /// Simulates this many iterations of the schedule.
    pub fn simulate(&self, iterations: u64) -> Traffic {
        let mut state = State { queue: VecDeque::new(), held: None, last: None };
        let mut traffic = Traffic::default();
        for iteration in 1..=iterations {
            let mut received = None;
            if self.order == Order::ConsumerFirst {
                received = Some(self.receive(&mut state, iteration));
            }
            if !self.send(&mut state, iteration, &mut traffic.dropped) {
                traffic.producer_error_at = Some(iteration);
                return traffic;
            }
            traffic.delivered.push(received.unwrap_or_else(|| self.receive(&mut state, iteration)));
        }
        traffic
    }

    /// Returns the first message that is lost: dropped, overwritten or refused. Returns None if this many
    /// iterations lose none.
    pub fn first_lost(&self, iterations: u64) -> Option<u64> {
        let Traffic { dropped, producer_error_at, delivered } = self.simulate(iterations);
        if self.mode != Mode::Singleton {
            return producer_error_at.or_else(|| dropped.first().copied());
        }
        let mut received = delivered.into_iter().zip(1_u64..).skip(self.offset as usize);
        received.find_map(|(got, iteration)| {
            let due = iteration - u64::from(self.offset);
            (got != Some(due)).then_some(due)
        })
    }

    /// Returns false if the queue is full and the send fails.
    fn send(&self, state: &mut State, message: u64, dropped: &mut Vec<u64>) -> bool {
        let capacity = if self.mode == Mode::Singleton { 1 } else { self.capacity.max(1) as usize };
        if state.queue.len() >= capacity {
            if self.mode == Mode::Fifo {
                return false;
            }
            let oldest = state.queue.pop_front();
            // What a receive has seen in the slot was not lost.
            dropped.extend(oldest.filter(|oldest| self.mode == Mode::Mailbox || state.last.is_none_or(|last| last < *oldest)));
        }
        state.queue.push_back(message);
        true
    }

    fn receive(&self, state: &mut State, iteration: u64) -> Option<u64> {
        if self.mode == Mode::Singleton {
            state.last = state.queue.front().copied().or(state.last);
            return state.last;
        }
        state.held = state.held.or_else(|| state.queue.pop_front());
        let due = iteration.saturating_sub(u64::from(self.offset));
        let received = state.held.take_if(|message| *message <= due);
        state.last = received.or(state.last);
        if self.reuse { state.last } else { received }
    }
}

struct State {
    queue: VecDeque<u64>,
    /// A message that the receiver has taken before it is due.
    held: Option<u64>,
    /// The message that was delivered last.
    last: Option<u64>,
}
