//! The pending operations of an engine, and what each waits for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::core::Futures;
use super::order::{Seen, SeenAccess};

/// The most operations that a line names.
const SHOWN: usize = 8;

/// The pending operations of an engine, and what each waits for; made by
/// [`Engine::blocked`](crate::Engine::blocked). `{}` writes a line for each operation, and one for each
/// circle.
///
/// It is a snapshot: operations continue while it is made.
#[derive(Debug, Clone)]
pub struct Blocked {
    operations: Vec<PendingOp>,
}

/// A pending operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PendingOp {
    /// Its name. A read or a wait by a future of its own is named after its variable.
    pub name: String,
    /// All that it waits for.
    pub waits: Vec<WaitsFor>,
    /// Whether it is awaited by something else than an operation of this engine: a task, a flow, or an
    /// operation of another engine.
    pub is_awaited_outside: bool,
}

/// What an operation waits for. Numbers of operations are places in [`Blocked::operations`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A variable, in whose queue it is directly behind these operations.
    Variable {
        /// The variable's name.
        variable: String,
        /// The operations.
        behind: Vec<usize>,
    },
    /// The end of these operations, which its future awaits.
    Operations(Vec<usize>),
    /// Something outside of the engine, such as a socket, a timer or a task: its future is pending, and
    /// awaits no operation of this engine directly.
    Outside,
    /// A thread to run it, or the return of its body. It has all its variables.
    Thread,
    /// Its device. It has left the queues of its variables.
    Device,
}

impl Blocked {
    pub(super) fn new(seen: &[Seen], futures: &Futures) -> Self {
        let places: HashMap<u32, usize> = seen.iter().enumerate().map(|(place, seen)| (seen.number, place)).collect();
        let place = |number: &u32| places.get(number).copied();
        let mut operations: Vec<PendingOp> = seen.iter().map(|seen| PendingOp::new(&seen.name)).collect();
        for (of, variable, behind) in Queues::new(seen, &places).waits() {
            operations[of].waits.push(WaitsFor::Variable { variable: variable.to_owned(), behind });
        }
        let mut awaited: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (target, waiter) in &futures.awaits {
            let Some(target) = place(target) else { continue };
            match waiter.as_ref().and_then(place) {
                Some(waiter) => awaited.entry(waiter).or_default().push(target),
                None => operations[target].is_awaited_outside = true,
            }
        }
        for number in &futures.pending {
            let Some(waiter) = place(number) else { continue };
            let waits = awaited.remove(&waiter).map_or(WaitsFor::Outside, WaitsFor::Operations);
            operations[waiter].waits.push(waits);
        }
        for (operation, seen) in operations.iter_mut().zip(seen) {
            if seen.has_left {
                operation.waits.push(WaitsFor::Device);
            } else if operation.waits.is_empty() {
                operation.waits.push(WaitsFor::Thread);
            }
        }
        Self { operations }
    }

    /// Returns the pending operations.
    pub fn operations(&self) -> &[PendingOp] {
        &self.operations
    }

    /// Returns the circles of operations that wait for each other, as far as the engine knows. None of them
    /// ends before another one does. An operation is in one circle at most.
    ///
    /// A circle that leads through a task has a gap. One operation waits for something
    /// [outside](WaitsFor::Outside), and another [is awaited](PendingOp::is_awaited_outside) from there.
    pub fn circles(&self) -> Vec<Vec<usize>> {
        let mut circles = Vec::new();
        // The place on the path, or MAX once all that an operation waits for was followed.
        let mut places: Vec<Option<usize>> = vec![None; self.operations.len()];
        for root in 0..self.operations.len() {
            let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut next = places[root].is_none().then_some(root);
            loop {
                if let Some(operation) = next.take() {
                    places[operation] = Some(path.len());
                    path.push((operation, self.operations[operation].waits_for().collect()));
                }
                let Some((operation, targets)) = path.last_mut() else { break };
                match targets.pop() {
                    None => {
                        places[*operation] = Some(usize::MAX);
                        path.pop();
                    }
                    Some(target) => match places[target] {
                        None => next = Some(target),
                        Some(usize::MAX) => {}
                        Some(first) => {
                            circles.push(path[first..].iter().map(|(operation, _)| *operation).collect());
                            // An operation of one circle is in no other.
                            path.drain(..).for_each(|(operation, _)| places[operation] = Some(usize::MAX));
                        }
                    },
                }
            }
        }
        circles
    }
}

impl PendingOp {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), waits: Vec::new(), is_awaited_outside: false }
    }

    /// Returns the operations that it waits for.
    fn waits_for(&self) -> impl Iterator<Item = usize> {
        self.waits
            .iter()
            .flat_map(|waits| match waits {
                WaitsFor::Variable { behind: operations, .. } | WaitsFor::Operations(operations) => &operations[..],
                WaitsFor::Outside | WaitsFor::Thread | WaitsFor::Device => &[],
            })
            .copied()
    }
}

/// The queues of variables, as far as the inspection saw operations in them.
struct Queues<'s> {
    /// In the order in which operations name the variables.
    queues: Vec<Queue<'s>>,
    places: &'s HashMap<u32, usize>,
}

#[derive(Default)]
struct Queue<'s> {
    granted_reads: Vec<usize>,
    /// The other requests. All requests that are linked behind one of these are here, too.
    others: BTreeMap<usize, &'s SeenAccess>,
}

impl<'s> Queues<'s> {
    fn new(seen: &'s [Seen], places: &'s HashMap<u32, usize>) -> Self {
        let (mut queues, mut numbers): (Vec<Queue<'s>>, HashMap<usize, usize>) = (Vec::new(), HashMap::new());
        for seen in seen {
            for access in &seen.accesses {
                let number = *numbers.entry(access.address).or_insert(queues.len());
                if number == queues.len() {
                    queues.push(Queue::default());
                }
                let queue = &mut queues[number];
                match access.is_granted_read {
                    true => queue.granted_reads.push(places[&seen.number]),
                    false => _ = queue.others.insert(places[&seen.number], access),
                }
            }
        }
        Self { queues, places }
    }

    /// Returns which operation waits for which variable, and the operations directly ahead of it there.
    fn waits(&self) -> impl Iterator<Item = (usize, &'s str, Vec<usize>)> {
        self.queues.iter().flat_map(|queue| {
            let behind: BTreeSet<usize> = queue.others.keys().filter_map(|&place| queue.behind(place, self.places)).collect();
            let heads = queue.others.keys().filter(|place| !behind.contains(place));
            let mut waits = Vec::new();
            heads.for_each(|&head| queue.waits_from(head, self.places, &mut waits));
            waits
        })
    }
}

impl<'s> Queue<'s> {
    /// Returns the request that is linked behind this one, unless this is a granted read.
    fn behind(&self, place: usize, places: &HashMap<u32, usize>) -> Option<usize> {
        let behind = places.get(&self.others.get(&place)?.behind?)?;
        self.others.contains_key(behind).then_some(*behind)
    }

    /// Adds what the requests from `head` on wait for.
    fn waits_from(&self, head: usize, places: &HashMap<u32, usize>, waits: &mut Vec<(usize, &'s str, Vec<usize>)>) {
        let (mut write, mut reads) = (None, self.granted_reads.clone());
        let mut next = Some(head);
        while let Some(place) = next {
            let access = self.others[&place];
            let ahead = if access.is_write && !reads.is_empty() { std::mem::take(&mut reads) } else { Vec::from_iter(write) };
            if !ahead.is_empty() {
                waits.push((place, &access.variable[..], ahead));
            }
            match access.is_write {
                true => write = Some(place),
                false => reads.push(place),
            }
            next = self.behind(place, places);
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.operations.len();
        write!(f, "{count} pending operation{}", if count == 1 { "" } else { "s" })?;
        for (number, operation) in self.operations.iter().enumerate() {
            write!(f, "\n{number} '{}'", operation.name)?;
            for (nth, waits) in operation.waits.iter().enumerate() {
                f.write_str(if nth == 0 { " waits for " } else { ", and for " })?;
                match waits {
                    WaitsFor::Variable { variable, behind } => write!(f, "variable '{variable}' behind {}", self.names(behind))?,
                    WaitsFor::Operations(operations) => write!(f, "the end of {}", self.names(operations))?,
                    WaitsFor::Outside => f.write_str("something outside of the engine")?,
                    WaitsFor::Thread => f.write_str("a thread, or runs")?,
                    WaitsFor::Device => f.write_str("its device")?,
                }
            }
            if operation.is_awaited_outside {
                f.write_str("; is awaited from outside")?;
            }
        }
        for circle in self.circles() {
            write!(f, "\ncircle: {}, {}", self.names(&circle), circle[0])?;
        }
        Ok(())
    }
}

impl Blocked {
    fn names(&self, operations: &[usize]) -> String {
        let names = operations.iter().take(SHOWN).map(|&number| format!("{number} '{}'", self.operations[number].name));
        let more = operations.len().saturating_sub(SHOWN);
        let names = names.chain((more > 0).then(|| format!("{more} more")));
        names.collect::<Vec<_>>().join(", ")
    }
}
