//! What comes behind operations that are futures: to wait inside of one for what comes behind it, directly or by way of others, would be for ever.
//!
//! While one is pending, each operation that comes behind it is noted, in the order of pushing, with those that it comes directly behind: of each variable, the last that has it alone, and those that
//! read it since. That is decided when it is pushed, and stays so until the first of them is over; so who looks finds the same as the queues say, whoever goes on there meanwhile.

use std::collections::{BTreeSet, HashMap};

use smallvec::SmallVec;

use crate::sync::{AtomicBool, Ordering};

/// Tells an operation from all others of its engine: its slot, and the slot's state.
pub(super) type Key = (u32, u64);

/// How many are noted before those are forgotten first that are over.
const NODES_MIN: usize = 64;

/// Operations that come behind futures, and those.
#[derive(Default)]
pub(super) struct Behind {
    /// In the order of pushing.
    nodes: Vec<Node>,
    places: HashMap<Key, u32>,
    /// By address.
    vars: HashMap<usize, Users>,
    /// How many there were when the others were forgotten.
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
    /// Whether anybody may be noted there, so that for most there is nothing to be looked up. Changes under the lock of pushes.
    pub(super) is_noted: &'v AtomicBool,
}

impl Use<'_> {
    fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Relaxed)
    }
}

/// Who of those that are noted uses a variable.
#[derive(Default)]
struct Users {
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
            *self = Self { alone: Some(node), reads: Vec::new() };
        } else {
            self.reads.push(node);
        }
    }
}

impl Behind {
    /// Notes an operation that is pushed, if it is a future or comes behind what is noted.
    pub(super) fn note<'v>(
        &mut self,
        key: Key,
        is_future: bool,
        uses: impl Iterator<Item = Use<'v>> + Clone,
        is_pending: impl Fn(Key) -> bool,
    ) {
        // As nearly always.
        if !is_future && uses.clone().all(|one| !one.is_noted()) {
            return;
        }
        let noted = uses.clone().filter(|one| one.is_noted());
        let ahead: SmallVec<_> = noted.clone().flat_map(|one| self.ahead(one, &is_pending)).collect();
        if ahead.is_empty() && !is_future {
            return noted.for_each(|one| self.forget_var(one, &is_pending));
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { key, is_future, ahead });
        self.places.insert(key, node);
        for one in uses {
            let users = self.vars.entry(one.var).or_default();
            if !one.is_noted() {
                // Of another variable, that was freed and had the same address.
                *users = Users::default();
                // ORDERING: Relaxed: under the lock of pushes, here and below.
                one.is_noted.store(true, Ordering::Relaxed);
            }
            users.add(node, one.is_alone);
        }
        if self.nodes.len() >= NODES_MIN.max(2 * self.kept) {
            self.forget(&is_pending);
        }
    }

    fn ahead(&self, one: Use<'_>, is_pending: impl Fn(Key) -> bool) -> impl Iterator<Item = Ahead> {
        let nodes = self.vars.get(&one.var).into_iter().flat_map(move |users| users.ahead(one.is_alone));
        let is_pending = move |&node: &u32| is_pending(self.nodes[node as usize].key);
        nodes.filter(is_pending).map(move |node| Ahead { node, var: one.var })
    }

    /// Forgets who used a variable, if they are over.
    fn forget_var(&mut self, one: Use<'_>, is_pending: impl Fn(Key) -> bool) {
        let is_pending = |node: &u32| is_pending(self.nodes[*node as usize].key);
        // Who had it alone is, or there would be somebody who comes behind.
        let is_over = self.vars.get(&one.var).is_none_or(|users| !users.reads.iter().any(is_pending));
        if is_over {
            self.vars.remove(&one.var);
            one.is_noted.store(false, Ordering::Relaxed);
        }
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
        self.vars.retain(|_, users| {
            *users = Users { alone: users.alone.as_ref().and_then(place), reads: users.reads.iter().filter_map(place).collect() };
            users.alone.is_some() || !users.reads.is_empty()
        });
        self.places = self.nodes.iter().zip(0..).map(|(node, place)| (node.key, place)).collect();
        self.kept = self.nodes.len();
    }

    #[cfg(all(test, not(anabranch_loom)))]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the variable of a future by which an operation comes behind it, if it does.
    pub(super) fn variable(&self, future: Key, operation: Key) -> Option<usize> {
        let first = *self.places.get(&future)?;
        let mut found = BTreeSet::from([*self.places.get(&operation)?]);
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
            Self { uses, waits_for, is_future: dice.u8(..4) == 0, is_over: false }
        }
    }

    fn key(number: usize) -> Key {
        (number as u32 % 7, number as u64)
    }

    /// All pairs, as whoever compares all that are pending finds them.
    #[test]
    fn what_comes_behind_a_future_is_found_whatever_was_forgotten() {
        for seed in 0..20 {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut behind, mut pushed) = (Behind::default(), Vec::<Pushed>::new());
            let flags: [AtomicBool; 12] = Default::default();
            for number in 0..400 {
                let new = Pushed::random(&mut dice, &pushed);
                let is_pending = |(_, number): Key| pushed.get(number as usize).is_none_or(|one| !one.is_over);
                let uses = new.uses.iter().map(|&(var, is_alone)| Use { var, is_alone, is_noted: &flags[var] });
                behind.note(key(number), new.is_future, uses, is_pending);
                let is_noted = behind.places.contains_key(&key(number));
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

    #[test]
    fn a_variable_is_not_taken_for_one_that_had_its_address() {
        let (old, new) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut behind = Behind::default();
        for (number, is_future, is_alone, is_noted) in [(0, true, true, &old), (1, true, false, &new), (2, false, true, &new)] {
            behind.note(key(number), is_future, [Use { var: 1, is_alone, is_noted }].into_iter(), |_| true);
        }
        assert_eq!([0, 1].map(|future| behind.variable(key(future), key(2))), [None, Some(1)]);
    }

    fn compare(behind: &Behind, pushed: &[Pushed]) -> Result<(), String> {
        let pending = |&number: &usize| !pushed[number].is_over;
        for future in (0..pushed.len()).filter(|&number| pushed[number].is_future).filter(pending) {
            for other in (0..pushed.len()).filter(pending) {
                let variable = behind.variable(key(future), key(other));
                let is_own = |variable| pushed[future].uses.iter().any(|&(own, _)| own == variable);
                if variable.is_some() != pushed[other].waits_for.contains(&future) || !variable.is_none_or(is_own) {
                    return Err(format!("{other} comes behind {future} by {variable:?}"));
                }
            }
        }
        Ok(())
    }
}
