//! What comes behind operations that are futures: to wait inside of one for what comes behind it, directly or
//! by way of others, would be for ever.
//!
//! While one is pending, each operation that comes behind it is noted, in the order of pushing, with those
//! that it comes directly behind: of each variable, the last that has it alone, and those that read it since.
//! That is decided when it is pushed, and stays so until the first of them is over; so who looks finds the
//! same as the queues say, whoever goes on there meanwhile.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

use smallvec::SmallVec;

use crate::sync::{AtomicU32, Ordering};

/// Tells an operation from all others of its engine: its slot, and the slot's state.
pub(super) type Key = (u32, u64);

/// How many are noted before those are forgotten first that are over.
const NODES_MIN: usize = 64;

/// For how many there is room at most when none is left.
const ROOM_MAX: usize = 1024;

/// Operations that come behind futures, and those.
#[derive(Default)]
pub(super) struct Behind {
    /// In the order of pushing.
    nodes: Vec<Node>,
    /// Which was noted last of each slot.
    latest: HashMap<u32, u32, BuildHasherDefault<Spread>>,
    lists: Vec<Users>,
    /// Those of no variable.
    spare: Vec<u32>,
    /// How many nodes there were when the others were forgotten.
    kept: usize,
}

struct Node {
    key: Key,
    is_future: bool,
    ahead: SmallVec<[Ahead; 2]>,
    found: Option<Found>,
}

/// Who stands directly ahead, and by which variable.
#[derive(Clone, Copy)]
struct Ahead {
    node: u32,
    var: usize,
}

/// What was found when it was last asked whether an operation comes behind a future. That stays so: it comes
/// behind nobody else later.
#[derive(Clone, Copy)]
struct Found {
    future: u32,
    /// By which variable of the future, if it does.
    by: Option<usize>,
}

/// What an operation that is pushed wants of a variable.
#[derive(Clone, Copy)]
pub(super) struct Claim<'v> {
    /// Its address.
    pub(super) var: usize,
    pub(super) is_alone: bool,
    /// One more than which list has its users, or 0, as with nearly all. Changes under the lock of pushes.
    pub(super) users: &'v AtomicU32,
}

impl Claim<'_> {
    fn may_have_users(&self) -> bool {
        // ORDERING: Relaxed: under the lock of pushes, here and below.
        self.users.load(Ordering::Relaxed) != 0
    }
}

/// Who of those that are noted uses a variable.
#[derive(Default)]
struct Users {
    /// Whose they are, or 0. A variable may know a list that has become another's.
    var: usize,
    /// The last that has it alone.
    alone: Option<u32>,
    /// Who reads it since.
    reads: Vec<u32>,
}

impl Users {
    /// Returns who stands directly ahead of who comes now.
    fn ahead(&self, is_alone: bool) -> impl Iterator<Item = u32> {
        let reads = if is_alone { &self.reads[..] } else { &[] };
        self.alone.iter().chain(reads).copied()
    }

    fn add(&mut self, node: u32, is_alone: bool) {
        if is_alone {
            (self.alone, self.reads) = (Some(node), Vec::new());
        } else {
            self.reads.push(node);
        }
    }
}

/// Spreads the numbers of slots, which are not chosen by anybody.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // Knuth's multiplicative hashing: by 2^64 over the golden ratio.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Behind {
    /// Forgets all. What memory there is is used again, unless it is much.
    pub(super) fn clear(&mut self) {
        if self.nodes.capacity().max(self.lists.capacity()) > ROOM_MAX {
            *self = Self::default();
        } else {
            let Self { nodes, latest, lists, spare, kept } = self;
            nodes.clear();
            latest.clear();
            lists.clear();
            spare.clear();
            *kept = 0;
        }
    }

    /// Notes an operation that is pushed, if it is a future or comes behind what is noted.
    pub(super) fn note<'v>(
        &mut self,
        key: Key,
        is_future: bool,
        claims: impl Iterator<Item = Claim<'v>> + Clone,
        is_pending: impl Fn(Key) -> bool,
    ) {
        if !is_future && !claims.clone().any(|claim| claim.may_have_users()) {
            return;
        }
        let ahead: SmallVec<_> = claims.clone().flat_map(|claim| self.ahead(claim, &is_pending)).collect();
        if ahead.is_empty() && !is_future {
            return claims.for_each(|claim| self.forget_users(claim, &is_pending));
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { key, is_future, ahead, found: None });
        self.latest.insert(key.0, node);
        for claim in claims {
            let list = self.list_of(claim).unwrap_or_else(|| self.make_list(claim));
            self.lists[list].add(node, claim.is_alone);
        }
        // Nor often where there are many lists, which are all looked at.
        if self.nodes.len() >= NODES_MIN.max(2 * self.kept).max(self.lists.len() / 8) {
            self.forget(&is_pending);
        }
    }

    /// Returns which list has a variable's users, if anybody is noted.
    fn list_of(&self, claim: Claim<'_>) -> Option<usize> {
        let list = (claim.users.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        self.lists.get(list).is_some_and(|users| users.var == claim.var).then_some(list)
    }

    fn make_list(&mut self, claim: Claim<'_>) -> usize {
        let list = self.spare.pop().unwrap_or(self.lists.len() as u32);
        if list as usize == self.lists.len() {
            self.lists.push(Users::default());
        }
        self.lists[list as usize].var = claim.var;
        claim.users.store(list + 1, Ordering::Relaxed);
        list as usize
    }

    fn ahead(&self, claim: Claim<'_>, is_pending: impl Fn(Key) -> bool) -> impl Iterator<Item = Ahead> {
        let nodes = self.list_of(claim).into_iter().flat_map(move |list| self.lists[list].ahead(claim.is_alone));
        let is_pending = move |&node: &u32| is_pending(self.nodes[node as usize].key);
        nodes.filter(is_pending).map(move |node| Ahead { node, var: claim.var })
    }

    /// Forgets who used a variable, as far as they are over: who had it alone is, or somebody would come
    /// behind.
    fn forget_users(&mut self, claim: Claim<'_>, is_pending: impl Fn(Key) -> bool) {
        if let Some(list) = self.list_of(claim) {
            let (nodes, users) = (&self.nodes, &mut self.lists[list]);
            while users.reads.pop_if(|node| !is_pending(nodes[*node as usize].key)).is_some() {}
            if !users.reads.is_empty() {
                return;
            }
            *users = Users::default();
            self.spare.push(list as u32);
        }
        claim.users.store(0, Ordering::Relaxed);
    }

    /// Forgets all but the futures that are pending and what comes behind them.
    fn forget(&mut self, is_pending: impl Fn(Key) -> bool) {
        let old = mem::take(&mut self.nodes);
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(old.len());
        for mut node in old {
            node.ahead.retain(|ahead| moved[ahead.node as usize].map(|node| ahead.node = node).is_some());
            node.found = node.found.and_then(|found| moved[found.future as usize].map(|future| Found { future, ..found }));
            let is_kept = is_pending(node.key) && (node.is_future || !node.ahead.is_empty());
            moved.push(is_kept.then_some(self.nodes.len() as u32));
            self.nodes.extend(is_kept.then_some(node));
        }
        let moved = |node: &u32| moved[*node as usize];
        for (users, list) in self.lists.iter_mut().zip(0..).filter(|(users, _)| users.var != 0) {
            users.alone = users.alone.as_ref().and_then(moved);
            users.reads = users.reads.iter().filter_map(moved).collect();
            if users.alone.is_none() && users.reads.is_empty() {
                users.var = 0;
                self.spare.push(list);
            }
        }
        self.cut_lists();
        self.latest = self.nodes.iter().zip(0..).map(|(node, number)| (node.key.0, number)).collect();
        self.kept = self.nodes.len();
    }

    /// Gives back the lists behind the last that is a variable's.
    fn cut_lists(&mut self) {
        while self.lists.pop_if(|users| users.var == 0).is_some() {}
        let count = self.lists.len();
        self.spare.retain(|&list| (list as usize) < count);
        self.lists.shrink_to(ROOM_MAX.max(2 * count));
        self.spare.shrink_to(ROOM_MAX.max(2 * count));
    }

    #[cfg(all(test, not(anabranch_loom)))]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn find(&self, key: Key) -> Option<u32> {
        let node = self.latest.get(&key.0).copied();
        node.filter(|&node| self.nodes[node as usize].key == key)
    }

    /// Returns the variable of a future by which an operation comes behind it, if it does.
    ///
    /// Looks back from the operation, depth first, and remembers what it finds: until it is asked for another
    /// future each node is looked at once.
    pub(super) fn variable(&mut self, future: Key, operation: Key, is_pending: impl Fn(Key) -> bool) -> Option<usize> {
        let (future, operation) = (self.find(future)?, self.find(operation)?);
        // Who was pushed before a future, and so who stands ahead of those, does not come behind it.
        let mut path: SmallVec<[(u32, usize); 8]> = (operation > future).then_some((operation, 0)).into_iter().collect();
        let by = loop {
            let Some((number, place)) = path.last_mut() else { break None };
            let node = &mut self.nodes[*number as usize];
            if let Some(found) = node.found.filter(|found| found.future == future) {
                if found.by.is_some() {
                    break found.by;
                }
                path.pop();
            } else if let Some(&ahead) = node.ahead.get(*place) {
                *place += 1;
                if ahead.node == future {
                    break Some(ahead.var);
                }
                // What is over has nothing ahead that is pending, as the future is.
                let may_be_behind = ahead.node > future && is_pending(self.nodes[ahead.node as usize].key);
                path.extend(may_be_behind.then_some((ahead.node, 0)));
            } else {
                node.found = Some(Found { future, by: None });
                path.pop();
            }
        };
        path.into_iter().for_each(|(number, _)| self.nodes[number as usize].found = Some(Found { future, by }));
        by
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests;
