//! Which asynchronous operation this thread polls, so that one that would wait for itself gets an error
//! instead: what is pushed is noted, and who is about to wait looks it up.

use std::cell::Cell;
use std::ptr::NonNull;

use super::behind::{Behind, Claim, Key};
use super::handle::Watchers;
use super::hub::Hub;
use super::op::Job;
use super::slots::Free;
use crate::error::{Kind, Result};
use crate::sync::{Ordering, thread_local};

#[derive(Clone, Copy)]
struct Polled {
    hub: usize,
    key: Key,
    job: NonNull<Job>,
}

thread_local! {
    static POLLED: Cell<Option<Polled>> = const { Cell::new(None) };
}

/// For as long as it lives, this thread polls that operation.
pub(super) struct Polling {
    outer: Option<Polled>,
}

impl Polling {
    pub(super) fn enter(hub: usize, key: Key, job: &Job) -> Self {
        let polled = Polled { hub, key, job: NonNull::from(job) };
        Self { outer: POLLED.try_with(|now| now.replace(Some(polled))).unwrap_or(None) }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let _ = POLLED.try_with(|now| now.set(self.outer));
    }
}

fn polled(hub: usize) -> Option<Polled> {
    POLLED.try_with(Cell::get).unwrap_or(None).filter(|polled| polled.hub == hub)
}

/// Returns true if this thread polls an operation of that engine.
pub(super) fn is_polling(hub: usize) -> bool {
    polled(hub).is_some()
}

impl Hub {
    /// Notes what an operation comes behind, if futures are pending. Called in the order in which operations
    /// enter their queues.
    #[inline(never)]
    pub(super) fn note(&self, free: &mut Free, key: Key, job: &Job) {
        let behind = free.behind.get_or_insert_default();
        // ORDERING: Relaxed: it goes up under the lock that the caller has; who misses that a future has
        // ended notes one more.
        if self.futures.load(Ordering::Relaxed) == 0 {
            behind.clear();
            free.is_noting = job.is_async;
        }
        if job.is_async {
            self.futures.fetch_add(1, Ordering::Relaxed);
        }
        if !free.is_noting {
            return;
        }
        let claims = job.asked.iter().map(|asked| Claim {
            var: asked.address(),
            is_alone: asked.request.is_write(),
            // SAFETY: whoever pushes it has a handle to the variable, or had one and what frees it stands
            // behind, or is this.
            users: &unsafe { asked.place() }.users,
        });
        behind.note(key, job.is_async, claims, |key| self.is_pending(key));
    }

    fn is_pending(&self, (number, state): Key) -> bool {
        Watchers::key(self.slots.get(number)) == state
    }

    /// Returns an error if this thread is inside of an asynchronous operation, and what it is about to wait
    /// for comes behind that.
    pub(super) fn may_wait_for(&self, awaited: Key) -> Result<()> {
        let Some(polled) = polled(self.address()) else { return Ok(()) };
        // SAFETY: who polls an operation keeps it until it has returned, and this thread is in there.
        let job = unsafe { polled.job.as_ref() };
        if polled.key == awaited {
            return Err(Kind::WaitsForOwnEnd { operation: job.name.to_cow() }.into());
        }
        let look = |behind: &mut Box<Behind>| behind.variable(polled.key, awaited, |key| self.is_pending(key));
        let Some(variable) = self.slots.free().behind.as_mut().and_then(look) else { return Ok(()) };
        let own = job.asked.iter().find(|own| own.address() == variable);
        // SAFETY: the operation that is polled stands in the variable's queue.
        let variable = own.map(|own| unsafe { own.place() }.name.to_cow()).unwrap_or_default();
        // SAFETY: it comes behind the one that is polled, so it is there, with its variables, at least until
        // that returns.
        let awaited = unsafe { self.slots.get(awaited.0).job() }.said_name();
        Err(Kind::WaitsForItself { operation: job.name.to_cow(), awaited, variable }.into())
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use futures::channel::oneshot;
    use futures::executor::block_on;

    use crate::sync::Ordering;
    use crate::{Engine, Executor, Op};

    /// Seen to fail where nobody counts that futures end, or looks.
    #[test]
    fn operations_are_noted_only_while_futures_are_pending() {
        let exec = Executor::builder().workers(1).build().expect("a thread starts");
        let engine = Engine::new(&exec).expect("there is room");
        let (x, y) = (engine.var("x", 0), engine.var("y", 0));
        let push = |op| drop(block_on(engine.push(op)).expect("there is room"));
        let is_noting = || {
            push(Op::task("plain", (), &y, || 1));
            engine.hub.slots.free().is_noting
        };
        for _ in 0..3 {
            assert!(!is_noting());
            let (sender, receiver) = oneshot::channel();
            push(Op::future("future", (), &x, move || async move { Ok(receiver.await?) }));
            assert!(is_noting());
            sender.send(1).expect("it is awaited");
            block_on(engine.idle()).expect("nothing fails");
        }
        assert!(!is_noting());
    }

    /// Seen to fail with all taken for pending, and with users that are not forgotten.
    #[test]
    fn what_comes_behind_what_is_over_is_not_noted() {
        let exec = Executor::builder().workers(1).build().expect("a thread starts");
        let engine = Engine::new(&exec).expect("there is room");
        let [x, y, z] = ["x", "y", "z"].map(|name| engine.var(name, 0));
        let push = |op| block_on(engine.push(op)).expect("there is room");
        let (sender, receiver) = oneshot::channel();
        drop(push(Op::future("waits", (), &x, move || async move { Ok(receiver.await?) })));
        block_on(push(Op::future("ends", &z, &y, move |_| async move { Ok(1) }))).expect("it does not fail");
        let noted = || engine.hub.slots.free().behind.as_ref().map_or(0, |behind| behind.len());
        assert_eq!(noted(), 2);
        let is_noted = || [&y, &z].map(|var| var.block().place.users.load(Ordering::Relaxed) != 0);
        assert_eq!(is_noted(), [true; 2]);
        drop(push(Op::task("behind what is over", &y, &y, |y: &i32| y + 1)));
        drop(push(Op::task("reads as what is over did", &z, (), |_: &i32| ())));
        assert_eq!((noted(), is_noted()), (2, [false; 2]));
        drop(push(Op::task("behind", &x, &y, |x: &i32| x + 1)));
        assert_eq!(noted(), 3);
        sender.send(1).expect("it is awaited");
        block_on(engine.idle()).expect("nothing fails");
    }
}
