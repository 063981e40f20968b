//! What comes behind operations that are futures: to wait inside of one for what comes behind it, directly or by way of others, would be for ever.
//!
//! While one is pending, each operation that comes behind it is noted, in the order of pushing, with those that it comes directly behind: of each variable, the last that has it alone, and those that
//! read it since. That is decided when it is pushed, and stays so until the first of them is over; so who looks finds the same as the queues say, whoever goes on there meanwhile.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use smallvec::SmallVec;

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
    /// By address, which a new variable may have from one that was freed: whoever is noted there has left the queue then, so all ahead of it are over, and it leads to nobody who waits.
    vars: HashMap<usize, Uses>,
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

/// Who of those that are noted uses a variable.
#[derive(Default)]
struct Uses {
    /// The last that has it alone.
    alone: Option<u32>,
    /// Who reads it since.
    reads: Vec<u32>,
}

impl Uses {
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
    /// Notes an operation that is pushed, with the variables that it uses and whether it has each alone, if it is a future or comes behind what is noted.
    pub(super) fn note(
        &mut self,
        key: Key,
        is_future: bool,
        uses: impl Iterator<Item = (usize, bool)> + Clone,
        is_pending: impl Fn(Key) -> bool,
    ) {
        if self.nodes.len() >= NODES_MIN.max(2 * self.kept) {
            self.forget(&is_pending);
        }
        let ahead: SmallVec<_> = uses.clone().flat_map(|(var, is_alone)| self.ahead(var, is_alone, &is_pending)).collect();
        if ahead.is_empty() && !is_future {
            return;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { key, is_future, ahead });
        self.places.insert(key, node);
        uses.for_each(|(var, is_alone)| self.vars.entry(var).or_default().add(node, is_alone));
    }

    fn ahead(&self, var: usize, is_alone: bool, is_pending: impl Fn(Key) -> bool) -> impl Iterator<Item = Ahead> {
        let nodes = self.vars.get(&var).into_iter().flat_map(move |uses| uses.ahead(is_alone));
        nodes.filter(move |&node| is_pending(self.nodes[node as usize].key)).map(move |node| Ahead { node, var })
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
        self.vars.retain(|_, uses| {
            *uses = Uses { alone: uses.alone.as_ref().and_then(place), reads: uses.reads.iter().filter_map(place).collect() };
            uses.alone.is_some() || !uses.reads.is_empty()
        });
        self.places = self.nodes.iter().zip(0..).map(|(node, place)| (node.key, place)).collect();
        self.kept = self.nodes.len();
    }

    #[cfg(test)]
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
                match ahead.node.cmp(&first) {
                    Ordering::Less => {}
                    Ordering::Equal => return Some(ahead.var),
                    Ordering::Greater => _ = found.insert(ahead.node),
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
            for number in 0..400 {
                let new = Pushed::random(&mut dice, &pushed);
                let is_pending = |(_, number): Key| !pushed[number as usize].is_over;
                behind.note(key(number), new.is_future, new.uses.iter().copied(), is_pending);
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
