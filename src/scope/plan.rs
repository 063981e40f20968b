//! The plan of a scope: what a user asks of it, and what a run needs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::compile::{Roots, check};
use super::draft::{Draft, Mode, StoreDraft, Used};
use super::fit::{Fit, Fitting};
use super::group::{Group, Op, Stages};
use super::memory::BYTES_MAX;
use super::results::Given;
use crate::error::{Error, Kind, Result};
use crate::name::Name;
use crate::plan::text::{bytes_text, printable};
use crate::tiles::Streamed;

/// The plan of a scope: which operations stream together, and the memory that they need. Prints itself.
///
/// [`Plan::scope`](crate::Plan::scope) returns it.
///
/// ```
/// # use anabranch::scope::{Streaming, Sum, Tile, TileMut};
/// # let mut g = anabranch::Graph::new();
/// # let sum = g.scope("sums", Streaming::strict(), |s| {
/// #     let a = s.store("a", [1_000_000]);
/// #     s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
/// #     s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>())
/// # });
/// # g.output("sum", &sum);
/// let plan = g.compile()?;
/// let scope = plan.scope("sums").expect("it is a node of the graph");
/// assert!(scope.peak_bytes() < scope.unstreamed_bytes());
/// println!("{scope}");                                            // its groups, operations and stores
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct ScopePlan {
    pub(super) name: Name,
    streamed: Streamed,
    pub(super) groups: Vec<(Arc<Group>, Stages)>,
    pub(super) program: Arc<[Op]>,
    pub(super) stores: Vec<Whole>,
    pub(super) scalars: usize,
    pub(super) results: Vec<Given>,
    /// The store that each is.
    pub(super) roots: Roots,
    in_flight: u64,
    peak_bytes: u64,
    device_bytes: u64,
    /// The names of its stores on the device.
    on_device: Vec<Name>,
    /// The names of its stores and scalars that are not used.
    unread: Vec<Name>,
}

/// A store, where it has memory of its own.
pub(super) struct Whole {
    pub(super) name: Name,
    pub(super) extents: Vec<u64>,
    pub(super) bytes: u64,
    pub(super) align: u64,
    pub(super) is_on_device: bool,
}

impl ScopePlan {
    /// # Errors
    /// As [`Graph::scope`](crate::Graph::scope) says of `compile`.
    pub(super) fn new(draft: Draft, results: Vec<Given>) -> Result<Self> {
        let roots = Roots::new(&draft);
        check(&draft, &roots)?;
        let fitting = Fitting { draft: &draft, roots: &roots };
        let Fit { streamed, groups, in_flight, peak_bytes, device_bytes, .. } = fitting.fit()?;
        let in_flight = groups.iter().map(|group| group.in_flight).max().unwrap_or(in_flight);
        if peak_bytes > BYTES_MAX {
            let fault = format!(
                "needs more bytes than can be addressed, with {in_flight} batches in flight: use smaller tiles, or set `in_flight` or `memory_max`"
            );
            return Err(draft.fault_of(fault));
        }
        let stages = groups
            .iter()
            .zip(streamed.groups())
            .map(|(group, streams)| super::stages::stages(&draft, group, streams, streamed.outline()));
        let stages: Vec<Stages> = stages.collect::<Result<_>>()?;
        let stores = draft.stores.iter().map(|store| Whole {
            name: store.name.clone(),
            bytes: store.extents.iter().product::<u64>() * store.element_bytes,
            extents: store.extents.clone(),
            align: store.align,
            is_on_device: store.is_on_device,
        });
        let (stores, scalars) = (stores.collect(), draft.scalars.len());
        let is_there = |&(number, store): &(u32, &StoreDraft)| store.is_on_device && roots.of(number) == number;
        let on_device = (0..).zip(&draft.stores).filter(is_there).map(|(_, store)| store.name.clone()).collect();
        let unread = unread(&draft, &roots, &results);
        let name = draft.name;
        let program = draft.ops.into_iter().map(|op| Op { name: op.name, body: op.body }).collect();
        let groups = groups.into_iter().map(Arc::new).zip(stages).collect();
        Ok(Self {
            name,
            streamed,
            groups,
            program,
            stores,
            scalars,
            results,
            roots,
            in_flight,
            peak_bytes,
            device_bytes,
            on_device,
            unread,
        })
    }

    /// Returns the groups, their windows, and the reasons why they end.
    pub fn streamed(&self) -> &Streamed {
        &self.streamed
    }

    /// Returns the most batches in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the most bytes of tiles, whole stores, buffers and parts of reductions in memory
    /// at a time, on the host and on the device together. Closures may use more.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns the most of these bytes that are on the device at a time.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Returns the error of a run that finds no memory for something.
    pub(super) fn no_memory(&self, of: String, bytes: u64, instead: &'static str) -> Error {
        Kind::NoScopeMemory { scope: self.name.clone(), of, bytes, instead }.into()
    }

    /// Returns the most bytes of whole stores in memory at a time, if nothing streams.
    pub fn unstreamed_bytes(&self) -> u64 {
        self.streamed.unstreamed_bytes()
    }
}

impl fmt::Display for ScopePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = if self.in_flight == 1 { "batch" } else { "batches" };
        let [peak, whole] = [self.peak_bytes, self.unstreamed_bytes()].map(bytes_text);
        writeln!(
            f,
            "scope '{}': at most {peak} with {} {batches} in flight, {whole} if nothing streams",
            printable(&self.name),
            self.in_flight
        )?;
        if !self.on_device.is_empty() {
            writeln!(
                f,
                "device       {} of these bytes: {}",
                bytes_text(self.device_bytes),
                printable(&self.on_device.join(", "))
            )?;
        }
        if !self.unread.is_empty() {
            let them = if self.unread.len() == 1 { "it" } else { "them" };
            writeln!(f, "unread       {}: nothing reads, keeps or returns {them}", printable(&self.unread.join(", ")))?;
        }
        writeln!(f, "{}", self.streamed.summary())?;
        self.streamed.write_groups(f)
    }
}

/// Returns the names of the stores and scalars that nothing reads, keeps or returns. To save a store is to
/// read it.
fn unread(draft: &Draft, roots: &Roots, results: &[Given]) -> Vec<Name> {
    let reads = || draft.ops.iter().flat_map(|op| &op.uses).filter(|used| used.mode == Mode::Read);
    let read = reads().filter_map(|used| if let Used::Store(store) = used.of { Some(roots.of(store)) } else { None });
    let updates = (0..).zip(&draft.stores).filter_map(|(store, known)| Some((roots.of(store), roots.of(known.updates?))));
    let copied = updates.filter(|(new, old)| new != old).map(|(_, old)| old);
    let kept = (0..).zip(&draft.stores).filter(|(_, store)| store.is_kept).map(|(store, _)| roots.of(store));
    let used: HashSet<u32> = read.chain(copied).chain(kept).collect();
    let stores = roots.all().filter(|store| !used.contains(store)).map(|store| &draft.stores[store as usize].name);
    let is_returned = |scalar: u32| results.iter().any(|given| matches!(given, Given::Scalar(given) if *given == scalar));
    let is_used = |scalar: u32| is_returned(scalar) || reads().any(|used| used.of == Used::Scalar(scalar));
    let scalars = (0..).zip(&draft.scalars).filter(|&(scalar, _)| !is_used(scalar)).map(|(_, known)| &known.name);
    stores.chain(scalars).cloned().collect()
}

impl fmt::Debug for ScopePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopePlan").field("name", &self.name).field("peak_bytes", &self.peak_bytes).finish_non_exhaustive()
    }
}
