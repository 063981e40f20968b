//! A worker. It repeatedly takes a ticket (its own newest, one from the common queue, or the oldest of
//! another worker) and resumes the program.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use std::{mem, ptr};

use smallvec::SmallVec;

use super::slice::{Pace, Slice};
use super::{Pool, Progress, Queue, Ticket};
use crate::error::shielded;
use crate::sync::{spin_loop, thread_local, yield_now};

/// The steps between two checks whether other runs wait in the common queue. If so, the worker's own tickets
/// are queued behind them.
const FUEL: u32 = 512;
/// The number of checks for work before an idle worker sleeps, and the pause between two of them. They take
/// about 50 microseconds in total: longer than waking a thread, so a worker that is needed soon is still
/// awake.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 50 };
const PAUSE: u32 = 24;
/// The number of checks after which a worker itself calls a waker that the searcher has not called: a few
/// microseconds.
const PATIENCE: u32 = 4;
/// The most checks of the searcher after a waker: about a millisecond.
const LONGEST: u32 = 20 * LOOKS;
/// The searcher stops at the next check after this many checks without a running node.
const QUIET: u32 = 3;

thread_local! {
    /// The place where this thread records its steps, if it is a worker.
    static PROGRESS: Cell<*const Progress> = const { Cell::new(ptr::null()) };
    /// Whether this thread runs foreign code between steps, see [`aside`].
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs foreign code other than a body, on a worker that may be at a step: a waker, or the drop of a value.
/// That code may wait for runs.
#[inline(always)]
pub(crate) fn aside<R>(foreign: impl FnOnce() -> R) -> R {
    struct Back(bool);

    impl Drop for Back {
        #[inline(always)]
        fn drop(&mut self) {
            let _ = ASIDE.try_with(|aside| aside.set(self.0));
        }
    }

    let _back = Back(ASIDE.try_with(|aside| aside.replace(true)).unwrap_or(false));
    foreign()
}

/// Returns true if this thread runs foreign code within [`aside`].
pub(crate) fn is_aside() -> bool {
    ASIDE.try_with(Cell::get).unwrap_or(true)
}

/// Runs worker number `worker` until the pool is over.
pub(super) fn work(pool: Arc<Pool>, worker: usize) {
    pool.sleep.register(worker);
    PROGRESS.with(|progress| progress.set(&raw const pool.progress[worker].0));
    (pool.around)(worker, &mut || if pool.is_alone() { work_alone(&pool) } else { Shared::new(&pool, worker).work() });
}

/// A worker's queue when there are several workers.
pub(crate) struct Shared<'p> {
    pool: &'p Pool,
    worker: usize,
    fuel: u32,
    /// Whether this worker yields to other runs now.
    gives_way: bool,
    /// Whether this worker has left a waker for the searcher.
    has_left: bool,
}

impl<'p> Queue<'p> for Shared<'p> {
    const IS_SHARED: bool = true;

    fn push(&mut self, ticket: Ticket) {
        if let Err(ticket) = self.pool.deques[self.worker].push(ticket) {
            self.pool.push_common([ticket]);
        }
        self.pool.sleep.wake_one();
    }

    fn defer(&mut self, ticket: Ticket) {
        self.pool.push_common([ticket]);
    }

    fn next_of(&mut self, slot: u16) -> Option<u32> {
        let ticket = self.pool.deques[self.worker].pop()?;
        if ticket.slot() == slot {
            return Some(self.keep_first(ticket));
        }
        self.push(ticket);
        None
    }

    /// Other workers can steal the halves of the rest.
    fn keep_first(&mut self, mut ticket: Ticket) -> u32 {
        while let (half, Some(rest)) = ticket.halve() {
            self.push(rest);
            ticket = half;
        }
        ticket.first()
    }

    fn progress(&self) -> &'p Progress {
        &self.pool.progress[self.worker].0
    }

    fn expect_long(&mut self) {}

    /// What other workers have is work for this one, too.
    fn has_others(&self) -> bool {
        true
    }

    fn wake(&mut self, waker: Waker) {
        // Calls wakers one at a time, in their order.
        self.wake_left();
        if self.pool.has_common() || !self.pool.deques[self.worker].is_empty() {
            return call(waker);
        }
        match self.pool.searcher.leave(waker) {
            Ok(()) => self.has_left = true,
            Err(waker) => call(waker),
        }
    }

    /// If this worker's waker was called already, this may be a waker that another worker has left. That is
    /// as good.
    #[inline]
    fn take_left(&mut self) -> Option<Waker> {
        if mem::take(&mut self.has_left) { self.pool.searcher.take() } else { None }
    }

    #[inline]
    fn has_fuel(&mut self) -> bool {
        self.fuel -= 1;
        self.fuel > 0 || {
            self.fuel = FUEL;
            self.gives_way = self.pool.has_common();
            !self.gives_way
        }
    }
}

/// Runs nodes in a poll, on a worker or on another thread, and records their steps in `progress`.
#[inline(always)]
pub(crate) fn at_steps_of<R>(progress: &Progress, work: impl FnOnce() -> R) -> R {
    struct Back(*const Progress, bool);

    impl Drop for Back {
        fn drop(&mut self) {
            let _ = PROGRESS.try_with(|own| own.set(self.0));
            let _ = ASIDE.try_with(|aside| aside.set(self.1));
        }
    }

    let outer = PROGRESS.try_with(|own| own.replace(progress)).unwrap_or(ptr::null());
    let _back = Back(outer, ASIDE.try_with(|aside| aside.replace(false)).unwrap_or(false));
    work()
}

/// Returns true if this thread runs the body of a node, as a worker or in place of one.
pub(crate) fn is_at_a_step() -> bool {
    let own = PROGRESS.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the progress of a worker is in its pool, which the worker keeps alive; `at_steps_of` borrows
    // another one.
    !is_aside() && unsafe { own.as_ref() }.is_some_and(Progress::is_at_a_step)
}

impl<'p> Shared<'p> {
    fn new(pool: &'p Pool, worker: usize) -> Self {
        Self { pool, worker, fuel: FUEL, gives_way: false, has_left: false }
    }

    fn work(&mut self) {
        while let Some(ticket) = self.next_ticket() {
            let entry = self.pool.entry(ticket);
            // SAFETY: the ticket gives the right to resume its program.
            unsafe { (entry.resume)(entry.run, ticket, self) };
            debug_assert!(!self.progress().is_at_a_step(), "a program that is left has no noted step");
        }
    }

    /// Waits for a ticket. Returns None when the pool is over.
    fn next_ticket(&mut self) -> Option<Ticket> {
        loop {
            let found = self.find().or_else(|| self.look());
            if let Some(waker) = self.take_left() {
                self.call_first(waker, found);
                continue;
            }
            if found.is_some() {
                return found;
            }
            if self.pool.is_over() {
                return None;
            }
            let pool = self.pool;
            pool.sleep.sleep(self.worker, |is_refused| {
                pool.has_common_before_sleep(is_refused) || self.has_stealable() || pool.is_over()
            });
        }
    }

    /// Checks for work for a while.
    fn look(&mut self) -> Option<Ticket> {
        let pool = self.pool;
        let found = (0..LOOKS).find_map(|look| {
            if look == PATIENCE {
                self.wake_left();
            }
            look_once(|| !pool.has_common(), || self.find_elsewhere())
        });
        let is_searcher = found.is_none() && LOOKS > 0 && pool.workers() > 1 && pool.searcher.begin();
        if is_searcher { self.search() } else { found }
    }

    /// Checks for work as the searcher, for 200 microseconds. The time starts again while other workers run
    /// nodes, and after each waker that the searcher calls.
    fn search(&mut self) -> Option<Ticket> {
        let pool = self.pool;
        let (mut looks, mut quiet, mut found) = (0, 0, None);
        while found.is_none() && looks < LONGEST && quiet <= QUIET {
            if let Some(waker) = pool.searcher.take() {
                (looks, quiet) = (0, 0);
                call(waker);
                // The woken thread may need this core.
                yield_now();
            }
            let is_quiet = || !pool.has_common() && !pool.searcher.has_waker();
            found = look_once(is_quiet, || self.find_elsewhere());
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                quiet = if pool.is_at_a_step() { 0 } else { quiet + 1 };
                if pool.is_over() {
                    break;
                }
            }
        }
        match pool.searcher.end() {
            Some(waker) => {
                self.call_first(waker, found);
                self.find()
            }
            None => found,
        }
    }

    /// Calls a waker. Meanwhile another worker may take the ticket.
    fn call_first(&mut self, waker: Waker, found: Option<Ticket>) {
        if let Some(ticket) = found {
            self.push(ticket);
        }
        call(waker);
    }

    fn find(&mut self) -> Option<Ticket> {
        let own = &self.pool.deques[self.worker];
        if mem::take(&mut self.gives_way) {
            self.pool.push_common(std::iter::from_fn(|| own.pop()));
        }
        own.pop().or_else(|| self.find_elsewhere())
    }

    fn find_elsewhere(&mut self) -> Option<Ticket> {
        let found = self.pool.pop_common().or_else(|| self.steal());
        if found.is_some() && self.has_work() {
            // One wake per push would leave the third worker asleep. So a worker that finds more tickets than
            // it takes wakes the next worker.
            self.pool.sleep.wake_one();
        }
        found
    }

    fn steal(&self) -> Option<Ticket> {
        let workers = self.pool.workers();
        (1..workers).map(|step| (self.worker + step) % workers).find_map(|victim| {
            let deque = &self.pool.deques[victim];
            if deque.is_empty() { None } else { deque.steal() }
        })
    }

    fn has_work(&self) -> bool {
        self.pool.has_common() || self.has_stealable()
    }

    /// Returns true if some worker has work that another can take.
    fn has_stealable(&self) -> bool {
        self.pool.deques.iter().any(|deque| !deque.is_empty())
    }
}

/// A stack of tickets. That of a small run needs no allocation.
pub(crate) type Tickets = SmallVec<[Ticket; 4]>;

/// The queue of a thread that runs all programs alone: a single worker, or a task that polls an inline run.
/// With `BESIDE`, the queue of a task that polls a run beside the workers. With `CHOSEN`, the queue of a
/// simulated run.
pub(crate) struct Alone<'a, const BESIDE: bool = false, const CHOSEN: bool = false> {
    pub(crate) tickets: &'a mut Tickets,
    progress: &'a Progress,
    /// Steps until the turn is checked.
    fuel: u32,
    turn: Turn<'a>,
    gives_way: bool,
}

/// When a thread that runs alone lets other work run.
enum Turn<'a> {
    /// When runs wait in the pool's common queue.
    Pool(&'a Pool),
    /// When the time slice of a poll is over.
    Slice(Slice, &'a mut Pace),
    /// After every step: the caller chooses the next one.
    Step,
}

impl<'a, const BESIDE: bool, const CHOSEN: bool> Queue<'a> for Alone<'a, BESIDE, CHOSEN> {
    const IS_SHARED: bool = BESIDE;
    const IS_CHOSEN: bool = CHOSEN;

    #[inline]
    fn push(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    /// Other runs continue first. Among this run's programs, this one continues first: the programs that wait
    /// for it are near it in memory.
    fn defer(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    #[inline]
    fn next_of(&mut self, slot: u16) -> Option<u32> {
        let newest = self.tickets.last_mut().filter(|ticket| ticket.slot() == slot)?;
        let (first, rest) = newest.split_first();
        match rest {
            Some(rest) => *newest = rest,
            None => _ = self.tickets.pop(),
        }
        Some(first)
    }

    #[inline]
    fn keep_first(&mut self, ticket: Ticket) -> u32 {
        let (first, rest) = ticket.split_first();
        if let Some(rest) = rest {
            self.push(rest);
        }
        first
    }

    fn progress(&self) -> &'a Progress {
        self.progress
    }

    fn expect_long(&mut self) {
        if let Turn::Slice(slice, _) = &mut self.turn {
            self.fuel = slice.expect_long(self.fuel);
        }
    }

    fn has_others(&self) -> bool {
        BESIDE || CHOSEN || !self.tickets.is_empty() || matches!(self.turn, Turn::Pool(pool) if pool.has_common())
    }

    #[inline]
    fn has_fuel(&mut self) -> bool {
        self.fuel -= 1;
        self.fuel > 0 || self.refuel()
    }
}

/// The most steps that a poll beside workers runs before it reads the clock.
const BESIDE_CARRIED_MAX: u32 = 64;

impl<'a, const BESIDE: bool> Alone<'a, BESIDE> {
    /// Returns the queue of a poll. The poll ends after a time slice, and continues in the pace of the
    /// previous one.
    pub(crate) fn for_a_slice(tickets: &'a mut Tickets, progress: &'a Progress, pace: &'a mut Pace) -> Self {
        let (slice, fuel) = Slice::at(pace);
        let fuel = if BESIDE { fuel.min(BESIDE_CARRIED_MAX) } else { fuel };
        Self { tickets, progress, fuel, turn: Turn::Slice(slice, pace), gives_way: false }
    }

    /// Returns the same queue with a shorter time slice.
    pub(crate) fn at_most(mut self, limit: Duration) -> Self {
        if let Turn::Slice(slice, _) = &mut self.turn {
            slice.shorten(limit);
        }
        self
    }

    /// Returns true if the time slice is over: a later poll resumes the tickets that are still queued.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(&self.turn, Turn::Slice(slice, _) if slice.is_spent())
    }

    /// Returns the newest ticket.
    pub(crate) fn next_ticket(&mut self) -> Option<Ticket> {
        self.tickets.pop()
    }
}

impl<const BESIDE: bool, const CHOSEN: bool> Alone<'_, BESIDE, CHOSEN> {
    /// Renews the fuel, unless other work waits.
    #[cold]
    fn refuel(&mut self) -> bool {
        let (fuel, is_ours) = match &mut self.turn {
            Turn::Pool(pool) => (FUEL, !pool.has_common()),
            Turn::Slice(slice, _) => match slice.next_batch() {
                0 => (1, false),
                steps => (steps, true),
            },
            Turn::Step => (1, false),
        };
        (self.fuel, self.gives_way) = (fuel, !is_ours);
        is_ours
    }
}

impl<'a> Alone<'a, false, true> {
    /// Returns the queue of one step.
    pub(crate) fn for_a_step(tickets: &'a mut Tickets, progress: &'a Progress) -> Self {
        Self { tickets, progress, fuel: 1, turn: Turn::Step, gives_way: false }
    }
}

impl<'a> Alone<'a> {
    fn for_a_pool(tickets: &'a mut Tickets, pool: &'a Pool) -> Self {
        Self { tickets, progress: &pool.progress[0].0, fuel: FUEL, turn: Turn::Pool(pool), gives_way: false }
    }
}

impl<const BESIDE: bool, const CHOSEN: bool> Drop for Alone<'_, BESIDE, CHOSEN> {
    fn drop(&mut self) {
        if let Turn::Slice(slice, pace) = &mut self.turn {
            **pace = slice.pace(self.fuel);
        }
    }
}

fn work_alone(pool: &Pool) {
    let mut tickets = Tickets::new();
    let mut queue = Alone::for_a_pool(&mut tickets, pool);
    loop {
        if mem::take(&mut queue.gives_way) {
            pool.push_common(queue.tickets.drain(..).rev());
        }
        if let Some(ticket) = queue.next_ticket().or_else(|| pool.pop_common()) {
            let entry = pool.entry(ticket);
            // SAFETY: the ticket gives the right to resume its program.
            unsafe { (entry.resume_alone)(entry.run, ticket, &mut queue) };
            debug_assert!(!queue.progress.is_at_a_step(), "a program that is left has no noted step");
        } else if pool.is_over() {
            return;
        } else if !(0..LOOKS).any(|_| look_once(|| !pool.has_common(), || pool.has_common().then_some(())).is_some()) {
            pool.sleep.sleep(0, |is_refused| pool.has_common_before_sleep(is_refused) || pool.is_over());
        }
    }
}

/// Checks for work once, after a pause that ends early if `is_quiet` returns false. The common queue is
/// checked all the time, because a run that comes soon should begin before its owner has gone to sleep.
/// `find` may check the deques of other workers, and each such check slows their owners down.
fn look_once<T>(is_quiet: impl Fn() -> bool, find: impl FnOnce() -> Option<T>) -> Option<T> {
    let was_quiet = (0..PAUSE).all(|_| {
        spin_loop();
        is_quiet()
    });
    if was_quiet {
        // A thread that awaits the result may need this core.
        yield_now();
    }
    find()
}

/// Calls a waker. A panic of the waker harms no other one.
fn call(waker: Waker) {
    let _ = shielded(|| waker.wake());
}
