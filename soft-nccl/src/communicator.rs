//! Communicators, by handle, and the operations that their kernels do.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use crate::driver::Module;
use crate::frames::Work;
use crate::link::Link;
use crate::lock;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const CUDA_ERROR: i32 = 1;
pub(crate) const SYSTEM_ERROR: i32 = 2;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const INVALID_USAGE: i32 = 5;
pub(crate) const REMOTE_ERROR: i32 = 6;
pub(crate) const IN_PROGRESS: i32 = 7;

/// How often a communicator says that a call is in progress.
const BUSY: u32 = 2;

/// One rank.
pub(crate) struct Communicator {
    size: usize,
    /// Its kernels have it, too. They may outlive the communicator, and must not unload its module.
    link: Arc<Link>,
    module: Module,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often it still says that its last call is in progress.
    busy: u32,
    /// The kernel of the last call, which is launched when the call is complete.
    next: Option<Launch>,
    error: Option<i32>,
}

/// A kernel on its way to its stream.
pub(crate) struct Launch {
    pub(crate) work: Work,
    pub(crate) from: (u64, u64),
    pub(crate) to: (u64, u64),
    pub(crate) stream: usize,
}

#[derive(Default)]
struct Registry {
    live: HashMap<u64, Arc<Communicator>>,
    /// Operations that are enqueued, by number.
    operations: HashMap<u64, (Arc<Link>, Work)>,
    /// Planned faults of a GPU: operations until it, and its code.
    faults: HashMap<u32, (u64, i32)>,
    aborted: HashMap<u32, u64>,
    last: u64,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

impl Registry {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Makes a communicator in the current context. Returns its handle.
pub(crate) fn init(id: [u8; 128], size: i32, rank: i32) -> Result<u64, i32> {
    if size < 1 || !(0..size).contains(&rank) {
        return Err(INVALID_ARGUMENT);
    }
    let module = Module::load().map_err(|_| CUDA_ERROR)?;
    let (size, rank) = (size as usize, rank as usize);
    let link = Link::join(&id, rank, size).map_err(|_| SYSTEM_ERROR)?;
    let communicator = Communicator { size, link, module, state: Mutex::default() };
    let mut registry = lock(&REGISTRY);
    let handle = registry.number();
    registry.live.insert(handle, Arc::new(communicator));
    Ok(handle)
}

pub(crate) fn get(handle: u64) -> Result<Arc<Communicator>, i32> {
    lock(&REGISTRY).live.get(&handle).cloned().ok_or(INVALID_ARGUMENT)
}

/// Frees a communicator. One that is aborted ends its kernels.
pub(crate) fn free(handle: u64, is_aborted: bool) -> Result<(), i32> {
    let communicator = {
        let mut registry = lock(&REGISTRY);
        let communicator = registry.live.remove(&handle).ok_or(INVALID_ARGUMENT)?;
        if is_aborted {
            *registry.aborted.entry(communicator.module.ordinal).or_default() += 1;
        }
        communicator
    };
    if is_aborted {
        communicator.link.abort()
    } else {
        communicator.link.leave()
    }
    Ok(())
}

pub(crate) fn plan_fault(ordinal: u32, nth: u64, code: i32) {
    lock(&REGISTRY).faults.insert(ordinal, (nth.max(1), code));
}

pub(crate) fn live(ordinal: u32) -> u64 {
    lock(&REGISTRY).live.values().filter(|communicator| communicator.module.ordinal == ordinal).count() as u64
}

pub(crate) fn aborted(ordinal: u32) -> u64 {
    lock(&REGISTRY).aborted.get(&ordinal).copied().unwrap_or(0)
}

/// Counts an operation of a GPU. Returns the code that it must end with, if it must.
fn planned(ordinal: u32) -> Option<i32> {
    let mut registry = lock(&REGISTRY);
    let (left, code) = registry.faults.get_mut(&ordinal)?;
    *left -= 1;
    let code = (*left == 0).then_some(*code)?;
    registry.faults.remove(&ordinal);
    Some(code)
}

/// Does an operation, as a kernel. Returns the bytes that it writes; None if it was aborted.
pub(crate) fn run(number: u64, from: &[u8]) -> Option<Vec<u8>> {
    let (link, work) = lock(&REGISTRY).operations.remove(&number)?;
    link.ask(work, from)
}

impl Communicator {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the state of the last call, and moves it on.
    pub(crate) fn poll(&self) -> i32 {
        let mut state = lock(&self.state);
        if self.link.is_lost() {
            state.error.get_or_insert(REMOTE_ERROR);
        }
        if let Some(code) = state.error {
            return code;
        }
        if !self.link.is_joined() {
            return IN_PROGRESS;
        }
        if state.busy > 0 {
            state.busy -= 1;
            return IN_PROGRESS;
        }
        let Some(launch) = state.next.take() else { return SUCCESS };
        if let Some(code) = planned(self.module.ordinal) {
            state.error = Some(code);
            return code;
        }
        let number = {
            let mut registry = lock(&REGISTRY);
            let number = registry.number();
            registry.operations.insert(number, (self.link.clone(), launch.work));
            number
        };
        match self.module.enqueue(launch.stream, launch.from, launch.to, number) {
            Ok(()) => SUCCESS,
            Err(_) => {
                lock(&REGISTRY).operations.remove(&number);
                state.error = Some(CUDA_ERROR);
                CUDA_ERROR
            }
        }
    }

    /// Begins a call, whose kernel is launched when the call is complete.
    pub(crate) fn begin(&self, next: Option<Launch>) -> i32 {
        if !self.link.is_joined() {
            return INVALID_USAGE;
        }
        let mut state = lock(&self.state);
        if let Some(code) = state.error {
            return code;
        }
        if state.busy > 0 || state.next.is_some() {
            return INVALID_USAGE;
        }
        (state.busy, state.next) = (BUSY, next);
        IN_PROGRESS
    }
}
