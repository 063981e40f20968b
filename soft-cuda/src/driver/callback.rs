//! Calls foreign code: host functions and kernels. The caller holds no lock of the driver during the call,
//! and the foreign code may not call the driver.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::lock;

/// The type of function that `cuLaunchHostFunc` takes.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// A host function with its argument, which the driver only passes on.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: HostFunction,
    /// An address, so that it can move to another thread. The caller of `cuLaunchHostFunc` guarantees that
    /// this is sound.
    pub(crate) argument: usize,
}

thread_local! {
    static IS_IN_FOREIGN_CODE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true on a thread that runs a host function or a kernel.
pub(crate) fn is_in_foreign_code() -> bool {
    IS_IN_FOREIGN_CODE.try_with(Cell::get).unwrap_or(false)
}

/// Runs foreign code, and marks the thread for that time.
pub(crate) fn foreign<R>(call: impl FnOnce() -> R) -> R {
    IS_IN_FOREIGN_CODE.set(true);
    let result = call();
    IS_IN_FOREIGN_CODE.set(false);
    result
}

impl HostCall {
    pub(crate) fn call(self) {
        // SAFETY: the caller of `cuLaunchHostFunc` guarantees that the function and its argument are valid
        // until the call.
        foreign(|| unsafe { (self.function)(self.argument as *mut c_void) });
    }
}

struct Job {
    call: HostCall,
    done: SyncSender<()>,
}

struct Caller {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// The thread that calls all host functions of a device one after the other, if a test requests that.
#[derive(Default)]
pub(crate) struct SerialCaller {
    caller: Mutex<Option<Caller>>,
}

impl SerialCaller {
    /// Lets the thread call the function, and returns after the call.
    pub(crate) fn call(&self, call: HostCall) {
        let (done, was_called) = sync_channel(1);
        let is_sent = {
            let mut caller = lock(&self.caller);
            if caller.is_none() {
                *caller = start();
            }
            caller.as_ref().is_some_and(|caller| caller.jobs.send(Job { call, done }).is_ok())
        };
        if is_sent {
            let _ = was_called.recv();
        } else {
            call.call();
        }
    }

    /// Ends the thread after the calls that it was given.
    pub(crate) fn stop(&self) {
        let Some(caller) = lock(&self.caller).take() else { return };
        drop(caller.jobs);
        let _ = caller.thread.join();
    }
}

fn start() -> Option<Caller> {
    let (jobs, given) = channel::<Job>();
    let work = move || {
        for job in given {
            job.call.call();
            let _ = job.done.send(());
        }
    };
    let thread = std::thread::Builder::new().name("soft-cuda callbacks".to_owned()).spawn(work).ok()?;
    Some(Caller { jobs, thread })
}
