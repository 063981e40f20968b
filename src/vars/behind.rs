//! What comes behind operations that are futures: to wait inside of one for what comes behind it, directly or by way of others, would be for ever.
//!
//! While one is pending, each operation that comes behind it is noted, in the order of pushing, with those that it comes directly behind: of each variable, the last that has it alone, and those that
//! read it since. That is decided when it is pushed, and stays so until the first of them is over; so who looks finds the same as the queues say, whoever goes on there meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

use crate::sync::{AtomicU32, Ordering};

/// Tells an operation from all others of its engine: its slot, and the slot's state.
pub(super) type Key = (u32, u64);

/// How many are noted before those are forgotten first that are over.
const NODES_MIN: usize = 64;

/// For how many there is room at most when all are over.
const ROOM_MAX: usize = 1024;

/// Operations that come behind futures, and those.
#[derive(Default)]
pub(super) struct Behind {
    /// In the order of pushing.
    nodes: Vec<Node>,
    /// Where the last is that was noted of a slot.
    places: HashMap<u32, u32, BuildHasherDefault<Spread>>,
    users: Vec<Users>,
    /// Those that are nobody's.
    spare: Vec<u32>,
    /// How many nodes there were when the others were forgotten.
    kept: usize,
}

struct Node {
    key: Key,
    is_future: bool,
    ahead: SmallVec<[Ahead; 2]>,
}

/// Who stands directly ahead, and where.
struct Ahead {
    node: u32,
    var: usize,
}

/// How an operation that is pushed uses a variable.
#[derive(Clone, Copy)]
pub(super) struct Use<'v> {
    /// Its address.
    pub(super) var: usize,
    pub(super) is_alone: bool,
    /// One more than where its users are, or 0, as with nearly all. Changes under the lock of pushes.
    pub(super) users: &'v AtomicU32,
}

impl Use<'_> {
    fn may_have_users(&self) -> bool {
        // ORDERING: Relaxed: under the lock of pushes, here and below.
        self.users.load(Ordering::Relaxed) != 0
    }
}

/// Who of those that are noted uses a variable.
#[derive(Default)]
struct Users {
    /// Whose they are, or 0. A variable may know a place that has become another's.
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
        if self.nodes.capacity() > ROOM_MAX {
            *self = Self::default();
        } else {
            let Self { nodes, places, users, spare, kept } = self;
            nodes.clear();
            places.clear();
            users.clear();
            spare.clear();
            *kept = 0;
        }
    }

    /// Notes an operation that is pushed, if it is a future or comes behind what is noted.
    pub(super) fn note<'v>(
        &mut self,
        key: Key,
        is_future: bool,
        uses: impl Iterator<Item = Use<'v>> + Clone,
        is_pending: impl Fn(Key) -> bool,
    ) {
        if !is_future && !uses.clone().any(|one| one.may_have_users()) {
            return;
        }
        let ahead: SmallVec<_> = uses.clone().flat_map(|one| self.ahead(one, &is_pending)).collect();
        if ahead.is_empty() && !is_future {
            return uses.for_each(|one| self.forget_users(one, &is_pending));
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { key, is_future, ahead });
        self.places.insert(key.0, node);
        for one in uses {
            let place = self.place_of(one).unwrap_or_else(|| self.make_users(one));
            self.users[place].add(node, one.is_alone);
        }
        if self.nodes.len() >= NODES_MIN.max(2 * self.kept) {
            self.forget(&is_pending);
        }
    }

    /// Returns where a variable's users are, if anybody is noted.
    fn place_of(&self, one: Use<'_>) -> Option<usize> {
        let place = (one.users.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        self.users.get(place).is_some_and(|users| users.var == one.var).then_some(place)
    }

    fn make_users(&mut self, one: Use<'_>) -> usize {
        let place = self.spare.pop().unwrap_or(self.users.len() as u32);
        if place as usize == self.users.len() {
            self.users.push(Users::default());
        }
        self.users[place as usize].var = one.var;
        one.users.store(place + 1, Ordering::Relaxed);
        place as usize
    }

    fn ahead(&self, one: Use<'_>, is_pending: impl Fn(Key) -> bool) -> impl Iterator<Item = Ahead> {
        let nodes = self.place_of(one).into_iter().flat_map(move |place| self.users[place].ahead(one.is_alone));
        let is_pending = move |&node: &u32| is_pending(self.nodes[node as usize].key);
        nodes.filter(is_pending).map(move |node| Ahead { node, var: one.var })
    }

    /// Forgets who used a variable, as far as they are over: who had it alone is, or somebody would come behind.
    fn forget_users(&mut self, one: Use<'_>, is_pending: impl Fn(Key) -> bool) {
        if let Some(place) = self.place_of(one) {
            let (nodes, users) = (&self.nodes, &mut self.users[place]);
            while users.reads.pop_if(|node| !is_pending(nodes[*node as usize].key)).is_some() {}
            if !users.reads.is_empty() {
                return;
            }
            *users = Users::default();
            self.spare.push(place as u32);
        }
        one.users.store(0, Ordering::Relaxed);
    }

    /// Forgets all but the futures that are pending and what comes behind them.
    fn forget(&mut self, is_pending: impl Fn(Key) -> bool) {
        let old = std::mem::take(&mut self.nodes);
        let mut places: Vec<Option<u32>> = Vec::with_capacity(old.len());
        for mut node in old {
            node.ahead.retain(|ahead| places[ahead.node as usize].map(|place| ahead.node = place).is_some());
            let is_kept = is_pending(node.key) && (node.is_future || !node.ahead.is_empty());
            places.push(is_kept.then_some(self.nodes.len() as u32));
            self.nodes.extend(is_kept.then_some(node));
        }
        let place = |node: &u32| places[*node as usize];
        for (users, number) in self.users.iter_mut().zip(0..).filter(|(users, _)| users.var != 0) {
            users.alone = users.alone.as_ref().and_then(place);
            users.reads = users.reads.iter().filter_map(place).collect();
            if users.alone.is_none() && users.reads.is_empty() {
                users.var = 0;
                self.spare.push(number);
            }
        }
        self.places = self.nodes.iter().zip(0..).map(|(node, place)| (node.key.0, place)).collect();
        self.kept = self.nodes.len();
    }

    #[cfg(all(test, not(anabranch_loom)))]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn find(&self, key: Key) -> Option<u32> {
        let place = self.places.get(&key.0).copied();
        place.filter(|&place| self.nodes[place as usize].key == key)
    }

    /// Returns the variable of a future by which an operation comes behind it, if it does.
    pub(super) fn variable(&self, future: Key, operation: Key) -> Option<usize> {
        let first = self.find(future)?;
        let mut found = BTreeSet::from([self.find(operation)?]);
        // The last first: who is ahead of one was pushed before it, so each is looked at once.
        while let Some(node) = found.pop_last() {
            for ahead in &self.nodes[node as usize].ahead {
                if ahead.node == first {
                    return Some(ahead.var);
                }
                if ahead.node > first {
                    found.insert(ahead.node);
                }
            }
        }
        None
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use super::*;

    /// One that was pushed: what it uses, and for whom it waits, directly or by way of others.
    struct Pushed {
        key: Key,
        uses: Vec<(usize, bool)>,
        waits_for: BTreeSet<usize>,
        is_future: bool,
        is_over: bool,
    }

    impl Pushed {
        fn random(dice: &mut fastrand::Rng, pushed: &[Self]) -> Self {
            let uses: HashMap<usize, bool> = (0..dice.usize(1..4)).map(|_| (dice.usize(..12), dice.u8(..3) == 0)).collect();
            let uses: Vec<_> = uses.into_iter().collect();
            let mut waits_for = BTreeSet::new();
            for (number, other) in pushed.iter().enumerate().filter(|(_, other)| !other.is_over) {
                let conflicts = |&(var, is_alone)| other.uses.iter().any(|&(its, alone)| its == var && (alone || is_alone));
                if uses.iter().any(conflicts) {
                    waits_for.insert(number);
                    waits_for.extend(&other.waits_for);
                }
            }
            // Slots are used again.
            let is_free = |slot: &u32| pushed.iter().all(|other| other.is_over || other.key.0 != *slot);
            let slot = (0..).find(is_free).expect("there are enough");
            Self { key: (slot, pushed.len() as u64), uses, waits_for, is_future: dice.u8(..4) == 0, is_over: false }
        }
    }

    /// All pairs, as whoever compares all that are pending finds them. Seen to fail with each part of what is noted, kept or forgotten left out or left there.
    #[test]
    fn what_comes_behind_a_future_is_found_whatever_was_forgotten() {
        for seed in 0..20 {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut behind, mut pushed) = (Behind::default(), Vec::<Pushed>::new());
            let places: [AtomicU32; 12] = Default::default();
            for number in 0..400 {
                let new = Pushed::random(&mut dice, &pushed);
                let is_pending = |(_, number): Key| pushed.get(number as usize).is_none_or(|one| !one.is_over);
                let uses = new.uses.iter().map(|&(var, is_alone)| Use { var: var + 1, is_alone, users: &places[var] });
                behind.note(new.key, new.is_future, uses, is_pending);
                let is_noted = behind.find(new.key).is_some();
                assert!(!is_noted || new.is_future || !new.waits_for.is_empty(), "seed {seed}: {number} waits for nobody");
                pushed.push(new);
                if number % 16 == 0 {
                    compare(&behind, &pushed).unwrap_or_else(|said| panic!("seed {seed}: {said}"));
                }
                // One that waits for nobody ends, nearly as often as one is pushed.
                let is_over = |&number: &usize| pushed[number].is_over;
                let is_ready = |number: &usize| !is_over(number) && pushed[*number].waits_for.iter().all(is_over);
                let ready: Vec<usize> = (0..=number).filter(is_ready).collect();
                if dice.u8(..10) > 0 {
                    dice.choice(&ready).iter().for_each(|&&number| pushed[number].is_over = true);
                }
            }
            assert!(behind.nodes.len() < 300, "seed {seed}: {} are kept", behind.nodes.len());
            behind.forget(|(_, number)| !pushed[number as usize].is_over);
            let waits_for_future =
                |one: &Pushed| one.waits_for.iter().any(|&other| pushed[other].is_future && !pushed[other].is_over);
            let kept = pushed.iter().filter(|one| !one.is_over && (one.is_future || waits_for_future(one)));
            assert_eq!(behind.nodes.len(), kept.count(), "seed {seed}");
        }
    }

    /// Seen to fail without the look whose the users are.
    #[test]
    fn a_variable_is_not_taken_for_one_that_had_its_address() {
        let (old, new) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut behind = Behind::default();
        for (number, is_future, is_alone, users) in [(0, true, true, &old), (1, true, false, &new), (2, false, true, &new)] {
            behind.note((number, 0), is_future, [Use { var: 1, is_alone, users }].into_iter(), |_| true);
        }
        assert_eq!([0, 1].map(|future| behind.variable((future, 0), (2, 0))), [None, Some(1)]);
    }

    fn compare(behind: &Behind, pushed: &[Pushed]) -> Result<(), String> {
        let pending = |&number: &usize| !pushed[number].is_over;
        for future in (0..pushed.len()).filter(|&number| pushed[number].is_future).filter(pending) {
            for other in (0..pushed.len()).filter(pending) {
                let variable = behind.variable(pushed[future].key, pushed[other].key);
                let is_own = |variable| pushed[future].uses.iter().any(|&(own, _)| own + 1 == variable);
                if variable.is_some() != pushed[other].waits_for.contains(&future) || !variable.is_none_or(is_own) {
                    return Err(format!("{other} comes behind {future} by {variable:?}"));
                }
            }
        }
        Ok(())
    }
}
