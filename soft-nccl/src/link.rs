//! The connection of a rank with the root of its communicator.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::frames::{Reply, Request, Work, read, write};
use crate::lock;
use crate::root::Address;

pub(crate) struct Link {
    stream: TcpStream,
    state: Mutex<State>,
    changed: Condvar,
    /// A kernel that speaks with the root has it.
    asking: Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    is_joined: bool,
    is_lost: bool,
    is_aborted: bool,
}

impl Link {
    /// Connects a rank. A thread waits for the others.
    pub(crate) fn join(id: &[u8; 128], rank: usize, size: usize) -> io::Result<Arc<Self>> {
        let stream = Address::of_id(id).connect(rank, size)?;
        let link = Arc::new(Self { stream, state: Mutex::default(), changed: Condvar::new(), asking: Mutex::default() });
        let own = link.clone();
        thread::Builder::new().name("soft-nccl-join".into()).spawn(move || {
            let is_joined = matches!(read(&own.stream), Ok(Reply::Joined));
            own.change(|state| (state.is_joined, state.is_lost) = (is_joined, !is_joined));
        })?;
        Ok(link)
    }

    /// Returns whether all ranks have come.
    pub(crate) fn is_joined(&self) -> bool {
        lock(&self.state).is_joined
    }

    /// Returns whether another rank was lost.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }

    /// Does an operation, as a kernel. Returns the bytes that it writes. If another rank is lost, it waits
    /// until it is aborted, and then returns None.
    pub(crate) fn ask(&self, work: Work, given: &[u8]) -> Option<Vec<u8>> {
        let asking = lock(&self.asking);
        let asked = write(&self.stream, &Request::Work(work, given.to_vec())).and_then(|()| read(&self.stream));
        drop(asking);
        if let Ok(Reply::Made(bytes)) = asked {
            return Some(bytes);
        }
        self.change(|state| state.is_lost = true);
        let mut state = lock(&self.state);
        while !state.is_aborted {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Ends in order.
    pub(crate) fn leave(&self) {
        let _ = write(&self.stream, &Request::Leave);
    }

    /// Ends the connection, and the kernels that wait.
    pub(crate) fn abort(&self) {
        self.change(|state| state.is_aborted = true);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }
}
