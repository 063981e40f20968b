//! Deadlines of runs and flows. The task that awaits one looks at the clock, and a thread of the process
//! wakes the task at the deadline. The first deadline that is awaited starts the thread.
//!
//! It is real time, so models of loom have no deadlines, and this file uses std's primitives.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Instant;

use crate::device::host::Origin;
use crate::error::{Error, Kind, Result, shielded};

/// A moment, and the registration of the task that awaits it.
pub(crate) struct Deadline {
    at: Instant,
    key: Option<Key>,
}

/// A moment, and a number that no other registration has.
type Key = (Instant, u64);

impl Deadline {
    pub(crate) fn new(at: Instant) -> Self {
        Self { at, key: None }
    }

    /// Returns whether it has passed. If not, the task is woken when it does.
    ///
    /// # Errors
    /// If the operating system refuses to start the thread.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        if Instant::now() >= self.at {
            return Ok(true);
        }
        if !is_forked() {
            register(self.at, &mut self.key, cx.waker())?;
        }
        Ok(false)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(key) = self.key.take().filter(|_| !is_forked()) {
            let waker = lock().wakers.remove(&key);
            // A waker's drop is foreign code.
            let _ = shielded(|| drop(waker));
        }
    }
}

struct Registered {
    wakers: BTreeMap<Key, Waker>,
    keys: u64,
}

static REGISTERED: Mutex<Registered> = Mutex::new(Registered { wakers: BTreeMap::new(), keys: 0 });
/// Notified when another deadline is the first.
static CHANGED: Condvar = Condvar::new();
/// Set when the thread is started: its process.
static STARTED: OnceLock<Origin> = OnceLock::new();

fn lock() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true in a child that was forked after the thread was started. It lacks the thread, which may have
/// had the lock. There, a deadline is kept whenever its task is polled.
fn is_forked() -> bool {
    STARTED.get().is_some_and(Origin::is_forked)
}

fn register(at: Instant, key: &mut Option<Key>, waker: &Waker) -> Result<()> {
    // A clone of a waker is foreign code, so it is made before the lock.
    let waker = waker.clone();
    let mut registered = lock();
    if STARTED.get().is_none() {
        std::thread::Builder::new().name("anabranch-deadlines".into()).spawn(wake_all).map_err(no_thread)?;
        let _ = STARTED.set(Origin::here());
    }
    let key = *key.get_or_insert_with(|| {
        registered.keys += 1;
        (at, registered.keys)
    });
    let replaced = registered.wakers.insert(key, waker);
    let is_first = registered.wakers.first_key_value().is_some_and(|(first, _)| *first == key);
    drop(registered);
    if is_first {
        CHANGED.notify_one();
    }
    let _ = shielded(|| drop(replaced));
    Ok(())
}

fn no_thread(refused: std::io::Error) -> Error {
    Error::with_source(Kind::Thread, refused.into())
}

/// The life of the thread.
fn wake_all() {
    let mut registered = lock();
    loop {
        let now = Instant::now();
        let first = registered.wakers.first_key_value().map(|((at, _), _)| *at);
        registered = match first {
            None => CHANGED.wait(registered).unwrap_or_else(PoisonError::into_inner),
            Some(at) if at > now => CHANGED.wait_timeout(registered, at - now).unwrap_or_else(PoisonError::into_inner).0,
            Some(_) => {
                let due = registered.wakers.pop_first();
                drop(registered);
                // A waker that panics harms no other deadline.
                let _ = shielded(|| due.into_iter().for_each(|(_, waker)| waker.wake()));
                lock()
            }
        };
    }
}
