//! The ranks of a communicator, and what they give each other. A rank that waits here is a kernel at work.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};

use crate::combine::combined;
use crate::lock;

/// A collective, with all that must be the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collective {
    AllReduce { count: usize, of: i32, by: i32 },
    ReduceScatter { count: usize, of: i32, by: i32 },
    AllGather { bytes: usize },
    Broadcast { bytes: usize, root: i32 },
}

/// The ranks that have one id.
pub(crate) struct Clique {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    joined: usize,
    /// The collectives that not all ranks have left, by number: for each rank what it does, and its bytes.
    meetings: HashMap<u64, Meeting>,
    /// The messages that no rank has taken yet, from one rank to another.
    mail: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

struct Meeting {
    given: Vec<Option<(Collective, Arc<[u8]>)>>,
    left: usize,
}

type Id = [u8; 128];

static CLIQUES: LazyLock<Mutex<HashMap<Id, Weak<Clique>>>> = LazyLock::new(Mutex::default);

impl Clique {
    /// Joins the ranks that have this id.
    pub(crate) fn join(id: Id, size: usize) -> Arc<Self> {
        let mut all = lock(&CLIQUES);
        all.retain(|_, clique| clique.strong_count() > 0);
        let known = all.get(&id).and_then(Weak::upgrade);
        let clique = known.unwrap_or_else(|| {
            let clique = Arc::new(Self { size, state: Mutex::default(), changed: Condvar::new() });
            all.insert(id, Arc::downgrade(&clique));
            clique
        });
        lock(&clique.state).joined += 1;
        clique
    }

    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.state).joined >= self.size
    }

    /// Wakes the kernels that wait, after one of them was told to end.
    pub(crate) fn wake(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Gives the bytes of a rank, and waits for those of all ranks. Returns the bytes that the rank gets, or
    /// None if it was aborted. If the ranks do different things, all of them wait for ever.
    pub(crate) fn meet(
        &self,
        number: u64,
        rank: usize,
        what: Collective,
        given: &[u8],
        is_aborted: &AtomicBool,
    ) -> Option<Vec<u8>> {
        let given: Arc<[u8]> = given.into();
        self.change(|state| {
            let meeting = state.meetings.entry(number).or_insert_with(|| Meeting { given: vec![None; self.size], left: 0 });
            meeting.given[rank] = Some((what, given));
        });
        let all: Vec<Arc<[u8]>> = self.wait(is_aborted, |state| {
            let meeting = state.meetings.get_mut(&number)?;
            let is_same = |given: &Option<(Collective, Arc<[u8]>)>| given.as_ref().is_some_and(|(other, _)| *other == what);
            if !meeting.given.iter().all(is_same) {
                return None;
            }
            let all = meeting.given.iter().flatten().map(|(_, bytes)| bytes.clone()).collect();
            meeting.left += 1;
            if meeting.left == self.size {
                state.meetings.remove(&number);
            }
            Some(all)
        })?;
        Some(match what {
            Collective::AllGather { .. } => all.concat(),
            Collective::Broadcast { root, .. } => all[root as usize].to_vec(),
            Collective::AllReduce { of, by, .. } => combined(of, by, &all),
            Collective::ReduceScatter { of, by, .. } => {
                let sum = combined(of, by, &all);
                let part = sum.len() / self.size;
                sum[part * rank..][..part].to_vec()
            }
        })
    }

    /// Sends and receives, each with the other rank. Returns None if it was aborted. A send ends when its
    /// message is taken.
    pub(crate) fn exchange(
        &self,
        rank: usize,
        send: Option<(usize, &[u8])>,
        receive: Option<usize>,
        is_aborted: &AtomicBool,
    ) -> Option<Vec<u8>> {
        if let Some((to, bytes)) = send {
            self.change(|state| state.mail.entry((rank, to)).or_default().push_back(bytes.to_vec()));
        }
        let mut received = Vec::new();
        if let Some(from) = receive {
            received = self.wait(is_aborted, |state| state.mail.get_mut(&(from, rank))?.pop_front())?;
            self.changed.notify_all();
        }
        if let Some((to, _)) = send {
            self.wait(is_aborted, |state| state.mail.get(&(rank, to)).is_none_or(VecDeque::is_empty).then_some(()))?;
        }
        Some(received)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait<R>(&self, is_aborted: &AtomicBool, mut ready: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            // ORDERING: Relaxed: `wake` takes the lock after the store, so a kernel that has not seen it yet
            // is woken behind it.
            if is_aborted.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(result) = ready(&mut state) {
                return Some(result);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
