//! The pending operations of an engine, and what each waits for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::mem;

use super::core::Futures;
use super::order::{Seen, SeenAccess};

/// The most operations that a line names.
const SHOWN: usize = 8;

/// The pending operations of an engine, and what each waits for; made by
/// [`Engine::blocked`](crate::Engine::blocked). `{}` writes a line for each operation, and one for each
/// cycle.
///
/// It is a snapshot: operations continue while it is made.
///
/// # Examples
/// Why an operation does not end:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (send, receive) = futures::channel::oneshot::channel::<()>();
/// engine.push(Op::future("wait", (), (), || async move { Ok(receive.await?) })).await?;
///
/// let blocked = engine.blocked()?;
/// assert_eq!(blocked.operations().len(), 1);
/// assert!(blocked.cycles().is_empty(), "no operations wait for each other");
/// println!("{blocked}");
/// # send.send(()).unwrap();
/// # engine.idle().await
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Blocked {
    operations: Vec<PendingOp>,
}

/// A pending operation.
///
/// # Examples
/// The operations that wait for something outside of the engine, such as a socket:
/// ```
/// use anabranch::engine::WaitsFor;
/// use anabranch::{Engine, Executor, Result};
///
/// fn outside(engine: &Engine) -> Result<Vec<String>> {
///     let blocked = engine.blocked()?;
///     let outside = blocked.operations().iter().filter(|op| op.waits.contains(&WaitsFor::Outside));
///     Ok(outside.map(|op| op.name.clone()).collect())
/// }
///
/// let engine = Engine::new(&Executor::host()?)?;
/// assert!(outside(&engine)?.is_empty());
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// # Examples
/// ```
/// use anabranch::engine::WaitsFor;
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let x = engine.var("x", 1);
/// let (send, receive) = futures::channel::oneshot::channel::<()>();
/// engine.push(Op::future("fetch", (), &x, || async move { Ok(receive.await.map(|()| 2)?) })).await?;
/// engine.push(Op::task("double", &x, &x, |x: &i32| x * 2)).await?;
///
/// let blocked = engine.blocked()?;
/// match &blocked.operations()[1].waits[0] {
///     WaitsFor::Variable { variable, behind } => assert_eq!((&variable[..], &behind[..]), ("x", &[0][..])),
///     other => println!("'double' waits for {other:?}"),
/// }
/// # send.send(()).unwrap();
/// # engine.idle().await
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A variable, in whose queue it is directly behind these operations; or which their work on a device
    /// still uses.
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
    /// Its device. It has left the queues of its variables, and may be about to end.
    Device,
}

impl Blocked {
    pub(super) fn new(seen: &[Seen], futures: &Futures) -> Self {
        let places: HashMap<u32, usize> = seen.iter().enumerate().map(|(place, seen)| (seen.number, place)).collect();
        let place = |number: &u32| places.get(number).copied();
        let mut operations: Vec<PendingOp> = seen.iter().map(|seen| PendingOp::new(&seen.name)).collect();
        for (of, variable, behind) in Waiters::all(seen, &places).iter().flat_map(Waiters::waits) {
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
        // The variables that work on a device uses, each with the operation and whether that writes.
        let mut on_devices: HashMap<usize, Vec<(usize, bool)>> = HashMap::new();
        for (place, seen) in seen.iter().enumerate().filter(|(_, seen)| seen.has_left && futures.has_devices) {
            operations[place].waits.push(WaitsFor::Device);
            for access in &seen.accesses {
                on_devices.entry(access.address).or_default().push((place, access.is_write));
            }
        }
        for (operation, seen) in operations.iter_mut().zip(seen).filter(|(operation, _)| operation.waits.is_empty()) {
            for access in seen.accesses.iter().filter(|_| !seen.has_left) {
                let uses = on_devices.get(&access.address).into_iter().flatten();
                let behind: Vec<usize> = uses.filter(|(_, writes)| *writes || access.is_write).map(|(place, _)| *place).collect();
                if !behind.is_empty() {
                    operation.waits.push(WaitsFor::Variable { variable: access.variable.clone(), behind });
                }
            }
            if operation.waits.is_empty() {
                operation.waits.push(WaitsFor::Thread);
            }
        }
        Self { operations }
    }

    /// Returns the pending operations.
    pub fn operations(&self) -> &[PendingOp] {
        &self.operations
    }

    /// Returns the cycles of operations that wait for each other, as far as the engine knows. None of them
    /// ends before another one does. An operation is in one cycle at most.
    ///
    /// A future that has polled the handle of an operation counts as one that awaits it, until either ends.
    /// It may have given that up, and kept the handle: in a `select` or a timeout that another branch won.
    /// Then a cycle may be shown that will open by itself.
    ///
    /// A cycle that leads through a task has a gap. One operation waits for something
    /// [outside](WaitsFor::Outside), and another [is awaited](PendingOp::is_awaited_outside) from there.
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        let mut cycles = Vec::new();
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
                            cycles.push(path[first..].iter().map(|(operation, _)| *operation).collect());
                            // An operation of one cycle is in no other. Those before it on the path may be.
                            path.drain(first..).for_each(|(operation, _)| places[operation] = Some(usize::MAX));
                        }
                    },
                }
            }
        }
        cycles
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

/// The queue of a variable, as far as the inspection saw operations in it.
#[derive(Default)]
struct Waiters<'s> {
    granted_reads: Vec<usize>,
    /// The other requests, each with the operation that is linked behind it. All requests that are linked
    /// behind one of these are here, too.
    others: BTreeMap<usize, (&'s SeenAccess, Option<usize>)>,
}

impl<'s> Waiters<'s> {
    /// Returns all queues, in the order in which operations name the variables.
    fn all(seen: &'s [Seen], places: &HashMap<u32, usize>) -> Vec<Self> {
        let (mut queues, mut numbers): (Vec<Self>, HashMap<usize, usize>) = (Vec::new(), HashMap::new());
        for (place, seen) in seen.iter().enumerate().filter(|(_, seen)| !seen.has_left) {
            for access in &seen.accesses {
                let number = *numbers.entry(access.address).or_insert(queues.len());
                if number == queues.len() {
                    queues.push(Self::default());
                }
                if access.is_granted_read {
                    queues[number].granted_reads.push(place);
                } else {
                    let behind = access.behind.and_then(|behind| places.get(&behind).copied());
                    queues[number].others.insert(place, (access, behind));
                }
            }
        }
        queues
    }

    /// Returns the operations that wait, the variable, and the operations directly ahead of each.
    fn waits(&self) -> Vec<(usize, &'s str, Vec<usize>)> {
        let behind: BTreeSet<usize> = self.others.values().filter_map(|(_, behind)| *behind).collect();
        let mut waits = Vec::new();
        for &head in self.others.keys().filter(|place| !behind.contains(place)) {
            let (mut write, mut reads) = (None, self.granted_reads.clone());
            let mut next = Some(head);
            while let Some(place) = next
                && let Some((access, behind)) = self.others.get(&place)
            {
                let ahead = if access.is_write && !reads.is_empty() { mem::take(&mut reads) } else { Vec::from_iter(write) };
                if !ahead.is_empty() {
                    waits.push((place, &access.variable[..], ahead));
                }
                match access.is_write {
                    true => write = Some(place),
                    false => reads.push(place),
                }
                next = *behind;
            }
        }
        waits
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
        for cycle in self.cycles() {
            write!(f, "\ncycle: {}, {}", self.names(&cycle), cycle[0])?;
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
