//! The reactor, a waiter for a lane that a device moves, and the loss of the device.
//!
//! ```text
//!                 the point passes         the device is lost
//! registers       woken, or ready          woken with the fault, or ended with it
//! comes later     ready                    ended with the fault
//! ```

use std::future::poll_fn;
use std::sync::Arc;

use super::harness::{JoinHandle, Plain, block_on, check_within, join, spawn};
use crate::device::queue::{Fault, Timeline};
use crate::runtime::{Pace, Reactor, RemoteLane, WaiterKey};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A device's stream, as shown by its driver.
struct Stream {
    word: AtomicU64,
    is_lost: AtomicBool,
    /// Whether the driver will report a fault that is not fatal, once.
    is_upset: AtomicBool,
    work: Plain,
}

impl Stream {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            is_upset: AtomicBool::new(false),
            work: Plain::new(0),
        })
    }

    /// The steps of a device: the work, then its point.
    fn work(&self, n: u64) {
        self.work.set(n as u32);
        // ORDERING: Release pairs with the Acquire in `reached`.
        self.word.store(n, Ordering::Release);
    }
}

impl Timeline for Stream {
    fn reached(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `work`.
        self.word.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), Fault> {
        // ORDERING: Acquire pairs with the Release of the model's device, which sets the faults.
        if self.is_upset.swap(false, Ordering::AcqRel) {
            return Err(Fault { code: 1, name: "invalid value".into(), is_fatal: false });
        }
        let fault = Fault { code: 700, name: "illegal address".into(), is_fatal: true };
        if self.is_lost.load(Ordering::Acquire) { Err(fault) } else { Ok(()) }
    }
}

/// Starts a reactor for streams of one device.
fn reactor(streams: &[Arc<Stream>]) -> Reactor {
    let lanes = streams.iter().map(|stream| Arc::new(RemoteLane::new(stream.clone(), 0)));
    Reactor::start(lanes.collect(), Pace::default(), 0).expect("loom has a thread left")
}

/// Waits for a point. Returns true if it passed.
fn wait(reactor: &Reactor, lane: usize, n: u64) -> bool {
    let mut key = WaiterKey::default();
    block_on(poll_fn(|cx| reactor.poll(lane, n, &mut key, cx))).is_ok()
}

fn device(stream: &Arc<Stream>, act: impl FnOnce(&Stream) + Send + 'static) -> JoinHandle<()> {
    let stream = stream.clone();
    spawn(move || act(&stream))
}

// Seen to fail with any of: no check of the lanes after the reactor announced its park (the waiter sleeps for
// ever); no unpark after the registration; no fence in `park`.
#[test]
fn a_point_wakes_who_waits_whether_the_reactor_was_parked_or_not() {
    check_within(2, || {
        let stream = Stream::new();
        let reactor = reactor(std::slice::from_ref(&stream));
        let device = device(&stream, |stream| stream.work(1));
        assert!(wait(&reactor, 0, 1));
        assert_eq!(stream.work.get(), 1, "what came before the point is visible");
        join(device);
        drop(reactor);
    });
}

// Seen to fail with any of: no check for a fault after registering; waiters that are not woken. A fault that
// is set after the wake is found by the next query of the driver.
#[test]
fn the_loss_of_a_device_ends_every_wait_now_and_later() {
    check_within(2, || {
        let stream = Stream::new();
        let reactor = reactor(std::slice::from_ref(&stream));
        // ORDERING: Release pairs with the Acquire in `check`.
        let device = device(&stream, |stream| stream.is_lost.store(true, Ordering::Release));
        assert!(!wait(&reactor, 0, 1));
        assert!(!wait(&reactor, 0, 2));
        join(device);
        drop(reactor);
    });
}

// Seen to fail with any of: only the queried lane lost; a loss that forgets the points reached before.
#[test]
fn all_lanes_of_a_device_are_lost_together_and_what_was_reached_stays() {
    check_within(2, || {
        let streams = [Stream::new(), Stream::new()];
        let reactor = reactor(&streams);
        let device = device(&streams[1], |stream| {
            stream.work(1);
            // ORDERING: Release pairs with the Acquire in `check`.
            stream.is_lost.store(true, Ordering::Release);
        });
        join(device);
        assert!(wait(&reactor, 1, 1));
        assert!(!wait(&reactor, 1, 2));
        assert!(!wait(&reactor, 0, 1));
        drop(reactor);
    });
}

// Seen to fail with: an `is_over` that is not checked before parking, or no unpark on drop.
#[test]
fn a_reactor_ends_when_it_is_dropped() {
    check_within(2, || {
        let stream = Stream::new();
        drop(reactor(&[stream]));
    });
}

// Seen to fail with: waiters that are not woken; a fault that stays.
#[test]
fn a_fault_that_is_not_fatal_ends_who_waits_and_the_lane_goes_on() {
    check_within(2, || {
        let stream = Stream::new();
        let reactor = reactor(std::slice::from_ref(&stream));
        // ORDERING: Release pairs with the Acquire in `check`.
        stream.is_upset.store(true, Ordering::Release);
        assert!(!wait(&reactor, 0, 1));
        stream.work(2);
        assert!(wait(&reactor, 0, 2));
        drop(reactor);
    });
}

/// A stream that waits for another one, whose work has failed: its point passes all the same.
fn check_fault_ahead(failing: usize) {
    check_within(2, move || {
        let streams = [Stream::new(), Stream::new()];
        let reactor = reactor(&streams);
        let device = spawn(move || {
            // ORDERING: Release pairs with the Acquire in `check`.
            streams[failing].is_upset.store(true, Ordering::Release);
            streams[failing].work(1);
            streams[1 - failing].work(1);
        });
        if wait(&reactor, 1 - failing, 1) {
            assert_eq!(reactor.faults().found(), 1, "it is known before the point");
        }
        join(device);
        drop(reactor);
    });
}

// Seen to fail with a lane that is signalled before the driver was queried about the lanes before it.
#[test]
fn a_fault_is_known_before_a_point_behind_it_on_a_lane_that_is_read_first() {
    check_fault_ahead(1);
}

// Seen to fail with a driver that is only queried about the lanes that had moved when they were read first.
#[test]
fn a_fault_is_known_before_a_point_behind_it_on_a_lane_that_is_read_last() {
    check_fault_ahead(0);
}

/// A stream whose points the driver reports, until the device is lost.
struct Asked {
    passed: AtomicU64,
    known: AtomicU64,
    is_lost: Arc<AtomicBool>,
}

impl Timeline for Asked {
    fn reached(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release stores of the model's device.
        let passed = self.passed.load(Ordering::Acquire);
        // Without a loss, the point that was read has passed.
        if !self.is_lost.load(Ordering::Acquire) {
            self.known.fetch_max(passed, Ordering::AcqRel);
        }
        self.known.load(Ordering::Acquire)
    }

    fn certain(&self) -> u64 {
        0
    }

    fn check(&self) -> Result<(), Fault> {
        let fault = Fault { code: 700, name: "illegal address".into(), is_fatal: true };
        // ORDERING: Acquire pairs with the Release of the model's device.
        if self.is_lost.load(Ordering::Acquire) { Err(fault) } else { Ok(()) }
    }
}

/// Two streams, the second ordered after the first. Then the device is lost.
fn check_loss_behind(first: usize) {
    check_within(2, move || {
        let is_lost = Arc::new(AtomicBool::new(false));
        let stream = || Arc::new(Asked { passed: AtomicU64::new(0), known: AtomicU64::new(0), is_lost: is_lost.clone() });
        let streams = [stream(), stream()];
        let lanes = streams.iter().map(|stream| Arc::new(RemoteLane::new(stream.clone(), 0)));
        let reactor = Reactor::start(lanes.collect(), Pace::default(), 0).expect("loom has a thread left");
        let (device, lost) = (streams.clone(), is_lost.clone());
        let device = spawn(move || {
            // ORDERING: Release, all: they pair with the Acquire loads in `reached` and `check`.
            device[first].passed.store(1, Ordering::Release);
            device[1 - first].passed.store(1, Ordering::Release);
            lost.store(true, Ordering::Release);
        });
        let is_reached = wait(&reactor, 1 - first, 1);
        join(device);
        if is_reached {
            assert_eq!(streams[first].reached(), 1, "the host knows what came before");
        }
        drop(reactor);
    });
}

// Both models were seen to fail with a lost device whose lanes signal points that were only reported.
#[test]
fn a_point_is_reached_with_those_before_it_or_lost() {
    check_loss_behind(0);
}

#[test]
fn a_point_is_reached_with_those_before_it_or_lost_whichever_lane_is_read_first() {
    check_loss_behind(1);
}
