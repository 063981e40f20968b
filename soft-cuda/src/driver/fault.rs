//! The fault plan of one device: its faults, and the operation or allocation that each concerns, counted from
//! the time when it was planned.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::lock;
use super::stall::Stalls;
use crate::code::Code;
use crate::wire::{HostFunctions, Seen, Which};

/// The fault of one operation.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fault {
    pub(crate) code: Option<Code>,
    pub(crate) delay: Option<Duration>,
    /// The ticket of the stall.
    pub(crate) stall: Option<u64>,
}

impl Fault {
    pub(crate) fn is_any(&self) -> bool {
        self.code.is_some() || self.delay.is_some() || self.stall.is_some()
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Effect {
    Fail(Code),
    Delay(Duration),
    Stall,
}

struct Rule {
    which: Which,
    left: u64,
    effect: Effect,
}

#[derive(Default)]
struct Plan {
    rules: Vec<Rule>,
    delay_every: Option<Duration>,
    host_functions: Option<HostFunctions>,
}

#[derive(Default)]
pub(crate) struct Faults {
    /// Whether a fault is planned. If not, operations need not take the lock.
    is_planned: AtomicBool,
    plan: Mutex<Plan>,
    /// Allocations until one fails; 0 if none will.
    allocations_left: AtomicU64,
    pub(crate) stalls: Stalls,
    pub(crate) written_values: Visibility,
    pub(crate) events: Visibility,
}

/// When the host sees certain effects.
#[derive(Default)]
pub(crate) struct Visibility(AtomicU64);

impl Visibility {
    pub(crate) fn set(&self, seen: Seen) {
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it, and those see the store.
        self.0.store(seen as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Seen {
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it, and those see the store
        // in `set`.
        Seen::of(self.0.load(Ordering::Relaxed))
    }
}

impl Faults {
    pub(crate) fn add(&self, which: Which, nth: u64, effect: Effect) {
        lock(&self.plan).rules.push(Rule { which, left: nth.max(1), effect });
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it. The lock guards the
        // rules.
        self.is_planned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn delay_every(&self, delay: Duration) {
        lock(&self.plan).delay_every = (!delay.is_zero()).then_some(delay);
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it. The lock guards the
        // rules.
        self.is_planned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_host_functions(&self, mode: HostFunctions) {
        lock(&self.plan).host_functions = Some(mode);
    }

    pub(crate) fn host_functions(&self) -> HostFunctions {
        lock(&self.plan).host_functions.unwrap_or(HostFunctions::Called)
    }

    pub(crate) fn fail_allocation(&self, nth: u64) {
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it.
        self.allocations_left.store(nth, Ordering::Relaxed);
    }

    /// Counts an allocation. Returns true if it must fail.
    pub(crate) fn fails_allocation(&self) -> bool {
        let count = |left: u64| left.checked_sub(1);
        // ORDERING: Relaxed: a count that guards no other data.
        self.allocations_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1)
    }

    /// Counts an operation. Returns its fault.
    pub(crate) fn for_operation(&self, kind: Which) -> Fault {
        let mut fault = Fault::default();
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it. The lock guards the
        // rules.
        if !self.is_planned.load(Ordering::Relaxed) {
            return fault;
        }
        let mut plan = lock(&self.plan);
        fault.delay = plan.delay_every.filter(|_| kind != Which::TimedEvent);
        plan.rules.retain_mut(|rule| {
            if rule.which != kind && (rule.which != Which::Any || kind == Which::TimedEvent) {
                return true;
            }
            rule.left -= 1;
            if rule.left > 0 {
                return true;
            }
            match rule.effect {
                Effect::Fail(code) => fault.code = Some(code),
                Effect::Delay(delay) => fault.delay = Some(delay),
                Effect::Stall => fault.stall = Some(self.stalls.issue()),
            }
            false
        });
        if plan.rules.is_empty() && plan.delay_every.is_none() {
            self.is_planned.store(false, Ordering::Relaxed);
        }
        fault
    }

    /// Removes all planned faults. Stalls in force stay until they are released.
    pub(crate) fn clear(&self) {
        *lock(&self.plan) = Plan::default();
        // ORDERING: Relaxed: the change applies only to calls that are ordered after it.
        self.is_planned.store(false, Ordering::Relaxed);
        self.allocations_left.store(0, Ordering::Relaxed);
        self.written_values.set(Seen::AtOnce);
        self.events.set(Seen::AtOnce);
    }
}
