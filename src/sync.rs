//! The primitives of the protocols between threads: those of std, or those of loom in a model. No other file
//! names loom.

#[cfg(not(anabranch_loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard, OnceLock},
    thread::{Thread, current, park, yield_now},
    thread_local,
};

#[cfg(anabranch_loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, yield_now},
};

#[cfg(all(feature = "mpi", anabranch_loom))]
pub(crate) use loom::sync::Condvar;
#[cfg(all(feature = "mpi", not(anabranch_loom)))]
pub(crate) use std::sync::Condvar;
pub(crate) use std::sync::atomic::Ordering;

/// Locks a mutex, and ignores that a thread panicked while it held the lock: each critical section of this
/// crate leaves its data valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the value of a mutex without a lock: `&mut` excludes other threads.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Parks this thread for at most `most`. In a model, this time ends when other threads have run.
pub(crate) fn park_for(most: std::time::Duration) {
    #[cfg(not(anabranch_loom))]
    std::thread::park_timeout(most);

    #[cfg(anabranch_loom)]
    {
        let _ = most;
        yield_now();
    }
}

/// A value in its own cache lines (two, because processors fetch them in pairs). So frequent writes to it do
/// not slow down reads of its neighbours.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Starts a detached thread.
pub(crate) fn spawn(name: String, life: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    #[cfg(not(anabranch_loom))]
    use std::thread::Builder;

    #[cfg(anabranch_loom)]
    use loom::thread::Builder;

    Builder::new().name(name).spawn(life).map(drop)
}

/// std's `thread_local`, with one value for each thread of loom. All threads of loom share one thread of the
/// system.
#[cfg(anabranch_loom)]
macro_rules! thread_local_of_loom {
    ($($(#[$attr:meta])* static $name:ident: $of:ty = const { $init:expr };)*) => {
        loom::thread_local! { $($(#[$attr])* static $name: $of = $init;)* }
    };
}

#[cfg(anabranch_loom)]
pub(crate) use {once_lock::OnceLock, thread_local_of_loom as thread_local};

#[cfg(anabranch_loom)]
mod once_lock {
    use super::{AtomicBool, Mutex, Ordering, lock};

    /// std's `OnceLock` for models. Loom does not see the order that std's type guarantees. So an atomic flag
    /// of loom's carries it: a thread that gets the value sees all writes before `set`.
    pub(crate) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
        setting: Mutex<()>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false), setting: Mutex::new(()) }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            // ORDERING: Acquire pairs with the Release in `set`: it makes the value visible.
            self.is_set.load(Ordering::Acquire).then(|| self.value.get().expect("it is set"))
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            let _setting = lock(&self.setting);
            self.value.set(value)?;
            // ORDERING: Release pairs with the Acquire in `get`: it publishes the value.
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }

        pub(crate) fn take(&mut self) -> Option<T> {
            self.is_set = AtomicBool::new(false);
            self.value.take()
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            if self.get().is_none() {
                let _ = self.set(make());
            }
            self.get().expect("it is set")
        }
    }
}
