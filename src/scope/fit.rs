//! How a scope fits into memory: the sizes of tiles, the groups, and the number of batches in flight.

use std::fmt;

use super::body::{Body, PartMaker};
use super::cache;
use super::compile::{Compiled, LaidUse, Roots, leaf_rows};
use super::draft::{Draft, StoreDraft, Use, Used};
use super::group::Group;
use super::memory::{ALIGN, BYTES_MAX, aligned};
use super::streaming::Streaming;
use crate::error::{Error, Kind, Result};
use crate::tiles::{Reason, Rule, Streamed, Window};

/// Why a scope does not stream as a whole; the [source](std::error::Error::source) of the error that
/// `compile` returns.
///
/// ```
/// use std::error::Error;
///
/// use anabranch::scope::{NotStreaming, Streaming, Sum, Tile, TileMut};
/// # let mut g = anabranch::Graph::new();
/// let deviation = g.scope("two passes", Streaming::strict(), |s| {
///     let a = s.store("a", [1_000_000]);
///     s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
///     let sum = s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>());
///     // The first batch needs the sum of all batches.
///     s.fold("deviation", (&a, &sum), Sum, |a: Tile<f64, 1>, sum: &f64| {
///         a.as_slice().iter().map(|a| (a - sum / 1e6).abs()).sum::<f64>()
///     })
/// });
/// # g.output("deviation", &deviation);
/// let error = g.compile().expect_err("it does not stream");
/// let cause = error.source().and_then(|source| source.downcast_ref::<NotStreaming>()).expect("there are reasons");
/// println!("{}", cause.reasons()[0]);
/// ```
#[derive(Clone, Debug)]
pub struct NotStreaming {
    reasons: Vec<Reason>,
}

impl NotStreaming {
    /// Returns all reasons.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }
}

impl fmt::Display for NotStreaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<String> = self.reasons.iter().map(ToString::to_string).collect();
        f.write_str(&reasons.join(";\n"))
    }
}

impl std::error::Error for NotStreaming {}

/// The bytes that the tiles of a batch in memory together should have on a device: there, to begin a kernel
/// takes longer than to work on a tile for a core's cache.
const DEVICE_CACHE_BYTES: u64 = 16 << 20;
/// The most bytes of a scope that has one tile for each store, because several need more.
const ONE_TILE_BYTES_MAX: u64 = 16 << 20;
/// Tiles of a batch with fewer bytes are not made smaller, so that more of them are in flight.
const BATCH_BYTES_MIN: u64 = 16 << 10;
const DEVICE_BATCH_BYTES_MIN: u64 = 1 << 20;
/// A device has enough to do with so many batches in flight: one goes there, one is worked on, and one comes
/// back.
const DEVICE_BATCHES: u64 = 3;
/// With fewer tiles nothing is gained, and a stencil's first batch would need the last one.
const TILES_MIN: u64 = 4;
/// How often a bound is raised to find the least that would do.
const TRIES: usize = 64;

/// A scope that is fitted into memory.
pub(super) struct Fitting<'d> {
    pub(super) draft: &'d Draft,
    pub(super) roots: &'d Roots,
}

pub(super) struct Fit {
    pub(super) streamed: Streamed,
    pub(super) groups: Vec<Group>,
    pub(super) in_flight: u64,
    pub(super) peak_bytes: u64,
    pub(super) device_bytes: u64,
    /// The bound of the groups, and whether they keep it.
    allowed: Option<u64>,
    is_bounded: bool,
}

impl Fit {
    /// Returns the bytes of the tiles of a batch.
    fn batch_bytes(&self) -> u64 {
        let tiles = |group: &crate::tiles::Group| {
            group.windows().iter().filter(|window| window.tiles.is_some()).map(|window| window.tile_bytes).sum()
        };
        self.streamed.groups().iter().map(tiles).max().unwrap_or(0)
    }
}

impl Fitting<'_> {
    fn settings(&self) -> &Streaming {
        &self.draft.settings
    }

    fn has_device(&self) -> bool {
        self.draft.stores.iter().any(|store| store.is_on_device)
    }

    /// Finds tiles, groups and the number of batches in flight. Tiles of the default size become smaller
    /// until the scope streams as it must, and fits with a batch for each worker: into the bound, or into the
    /// bytes of the whole stores.
    pub(super) fn fit(&self) -> Result<Fit> {
        let wanted = self.settings().batches_in_flight() as u64;
        let workers = self.settings().worker_count() as u64;
        let (batches, bytes_min) =
            if self.has_device() { (workers.min(DEVICE_BATCHES), DEVICE_BATCH_BYTES_MIN) } else { (workers, BATCH_BYTES_MIN) };
        let enough = wanted.min(batches);
        let (sizes, mut refused) = (self.sizes()?, None);
        let [mut best, mut above] = [const { None::<Fit> }; 2];
        for &pieces in &sizes {
            let tried = match self.settings().memory_max {
                Some(limit) => self.fit_at_most(pieces, wanted, limit),
                None => self.fit_below_whole((pieces, wanted), &mut above),
            };
            match tried {
                Ok(Ok(fit)) if fit.in_flight >= enough => return Ok(fit),
                Ok(Ok(fit)) => {
                    let is_small = fit.batch_bytes() <= bytes_min;
                    best = best.filter(|best| best.in_flight >= fit.in_flight).or(Some(fit));
                    if is_small {
                        break;
                    }
                }
                Ok(Err(())) => {}
                Err(error) if error.is_not_streaming() => _ = refused.get_or_insert(error),
                Err(error) => return Err(error),
            }
        }
        best.or(above).map_or_else(|| self.fit_least(&sizes, wanted, refused), Ok)
    }

    /// Fits a scope without a bound into no more bytes than the whole stores have. If that fails with tiles
    /// of this size, `above` becomes a fit into more.
    fn fit_below_whole(&self, (pieces, wanted): (u64, u64), above: &mut Option<Fit>) -> Result<Result<Fit, ()>> {
        let (fit, settings) = (self.fit_in(pieces, wanted, None)?, self.settings());
        let whole = fit.streamed.unstreamed_bytes();
        let is_set = settings.in_flight.is_some() || settings.factor.is_some() || settings.rule == Rule::Off;
        if is_set || pieces == 1 || fit.peak_bytes <= whole {
            return Ok(Ok(fit));
        }
        above.get_or_insert(fit);
        let one = self.fit_in(pieces, 1, None)?;
        if one.peak_bytes > whole { Ok(Err(())) } else { self.widened(one, (pieces, wanted), whole).map(Ok) }
    }

    /// Returns how many tiles the largest store may have, those of the default size first.
    fn sizes(&self) -> Result<Vec<u64>> {
        let (first, most) = (self.pieces()?, self.pieces_max());
        let smaller = |&pieces: &u64| (pieces < most).then(|| (pieces * 2).max(TILES_MIN).min(most));
        let is_set = self.settings().factor.is_some();
        Ok(std::iter::successors(Some(first), smaller).take(if is_set { 1 } else { usize::MAX }).collect())
    }

    /// Fits a scope into the least bytes that would do. `refused` says why it does not stream with some
    /// tiles.
    fn fit_least(&self, sizes: &[u64], wanted: u64, refused: Option<Error>) -> Result<Fit> {
        let limit = self.settings().memory_max;
        let one = refused.as_ref().and_then(|refused| self.in_one(refused)).map(|fit| (1, fit));
        let of_size = |&pieces: &u64| Some((pieces, self.least(pieces).ok()?));
        let others = sizes.iter().filter_map(of_size).filter(|_| limit.is_some());
        let Some((pieces, least)) = others.chain(one).min_by_key(|(_, fit)| fit.peak_bytes) else {
            return Err(refused.expect("without a bound, only a refusal leads here"));
        };
        let (bytes, limit) = (least.peak_bytes, limit.unwrap_or(u64::MAX));
        if bytes <= limit {
            return self.widened(least, (pieces, wanted), limit);
        }
        let largest = largest(&least.streamed);
        let fault = format!("needs {bytes} bytes with one batch in flight{largest}, and `memory_max` is {limit}: allow {bytes}");
        Err(self.draft.fault_of(fault))
    }

    /// Fits a scope with one tile for each store, if little data was refused for the bytes of its tiles
    /// alone: then the whole stores need less.
    fn in_one(&self, refused: &Error) -> Option<Fit> {
        let reasons = std::error::Error::source(refused)?.downcast_ref::<NotStreaming>()?.reasons();
        let is_of_bytes = |reason: &Reason| matches!(reason, Reason::Memory { .. });
        let fits = self.settings().factor.is_none() && reasons.iter().all(is_of_bytes);
        let fit = fits.then(|| self.fit_in(1, 1, None).ok())??;
        (fit.peak_bytes <= ONE_TILE_BYTES_MAX).then_some(fit)
    }

    /// Fits a scope into so many bytes, with as many batches in flight as possible, if it fits.
    fn fit_at_most(&self, pieces: u64, wanted: u64, limit: u64) -> Result<Result<Fit, ()>> {
        // The layout needs some bytes more than the rules know of. Shorter groups may need less.
        let mut allowed = limit;
        for _ in 0..TRIES {
            let one = self.fit_in(pieces, 1, Some(allowed))?;
            if one.peak_bytes <= limit {
                return Ok(Ok(self.widened(one, (pieces, wanted), limit)?));
            }
            let Some(less) = allowed.checked_sub(one.peak_bytes - limit).filter(|_| one.is_bounded) else { break };
            allowed = less;
        }
        Ok(Err(()))
    }

    /// Returns the same groups with as many batches in flight as fit.
    fn widened(&self, one: Fit, (pieces, wanted): (u64, u64), limit: u64) -> Result<Fit> {
        let allowed = one.allowed;
        // More batches need more bytes.
        let (mut fitting, mut low, mut high) = (one, 1, wanted);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let fit = self.fit_in(pieces, middle, allowed)?;
            if fit.peak_bytes <= limit {
                (fitting, low) = (fit, middle);
            } else {
                high = middle - 1;
            }
        }
        Ok(fitting)
    }

    /// Fits a scope into few bytes: one byte less would not do.
    fn least(&self, pieces: u64) -> Result<Fit> {
        let mut fitting = self.fit_in(pieces, 1, Some(BYTES_MAX))?;
        for _ in 0..TRIES {
            match self.fit_at_most(pieces, 1, fitting.peak_bytes.saturating_sub(1)) {
                Ok(Ok(fit)) => fitting = fit,
                // It does not fit, or not as a whole.
                Ok(Err(())) | Err(_) => break,
            }
        }
        Ok(fitting)
    }

    /// Fits a scope with this number of tiles of its largest store, and of batches in flight.
    fn fit_in(&self, pieces: u64, in_flight: u64, limit: Option<u64>) -> Result<Fit> {
        let tile_of = |store: u32| self.tile(store, pieces);
        let mut compiled = Compiled::new(self.draft, self.roots, &tile_of)?;
        let settings = self.settings();
        let (streamed, is_bounded) = match compiled.outline.stream_within(settings.rule, limit) {
            Ok(streamed) => (streamed, true),
            // The layout says how much it is.
            Err(_) if limit.is_some() => (compiled.outline.stream(settings.rule)?, false),
            Err(error) => return Err(error),
        };
        if settings.is_strict && !streamed.is_one() {
            return Err(self.not_streaming(&streamed));
        }
        let mut uses = vec![0; self.draft.stores.len()];
        for window in streamed.groups().iter().flat_map(|group| group.windows()) {
            compiled.store_of(window.store).into_iter().for_each(|store| uses[store as usize] += 1);
        }
        let kept =
            |store: u32| (0..).zip(&self.draft.stores).any(|(other, known)| known.is_kept && self.roots.of(other) == store);
        compiled.is_shared = (0..).zip(&uses).map(|(store, &uses)| uses > 1 || kept(store)).collect();
        let lay_out = |is_chunked: bool| {
            let lay_out = |group| compiled.lay_out(group, in_flight, is_chunked);
            let mut groups: Vec<Group> = streamed.groups().iter().map(lay_out).collect();
            self.live(&compiled, &mut groups, kept);
            let peaks = self.peaks(&compiled, &groups);
            (groups, peaks)
        };
        let (mut groups, mut peaks) = lay_out(true);
        if settings.memory_max.is_some_and(|limit| peaks.0 > limit) {
            (groups, peaks) = lay_out(false);
        }
        let (peak_bytes, device_bytes) = peaks;
        Ok(Fit { streamed, groups, in_flight, peak_bytes, device_bytes, allowed: limit, is_bounded })
    }

    fn not_streaming(&self, streamed: &Streamed) -> Error {
        let reasons = streamed.reasons();
        let scope = self.draft.name.clone();
        Error::with_source(Kind::NotStreaming { scope, reasons: reasons.len() }, Box::new(NotStreaming { reasons }))
    }

    /// Says when stores with memory of their own begin and end.
    fn live(&self, compiled: &Compiled<'_>, groups: &mut [Group], is_kept: impl Fn(u32) -> bool) {
        for store in (0..self.draft.stores.len() as u32).filter(|&store| compiled.is_shared(store)) {
            let uses = |group: &Group| group.storages.iter().any(|storage| storage.store == store);
            if let Some(group) = groups.iter_mut().find(|group| uses(group)) {
                group.begins.push(store);
            }
            if let Some(group) = groups.iter_mut().rfind(|group| uses(group) && !is_kept(store)) {
                group.ends.push(store);
            }
        }
    }

    /// Returns the most bytes in memory at a time, and the most of them on the device.
    fn peaks(&self, compiled: &Compiled<'_>, groups: &[Group]) -> (u64, u64) {
        let of_stores = |stores: &[u32], is_on_device: bool| -> u64 {
            let stores = stores.iter().map(|&store| &self.draft.stores[store as usize]);
            let there = stores.filter(|store| store.is_on_device == is_on_device);
            let bytes = |store: &StoreDraft| store.extents.iter().product::<u64>() * store.element_bytes;
            there.map(|store| if is_on_device { aligned(bytes(store)) } else { bytes(store) }).sum()
        };
        let ([mut host, mut device], [mut peak, mut device_peak]) = ([0, 0], [0, 0]);
        for group in groups {
            host += of_stores(&group.begins, false);
            device += of_stores(&group.begins, true);
            let transferred = group.ops.iter().map(|op| self.outside(compiled, op.number, group));
            let own = [host, device, group.host.bytes, group.device.bytes];
            peak = peak.max(own.into_iter().chain(transferred).fold(0, u64::saturating_add));
            device_peak = device_peak.max(device.saturating_add(group.device.bytes));
            host -= of_stores(&group.ends, false);
            device -= of_stores(&group.ends, true);
        }
        (peak, device_peak)
    }

    /// Returns the bytes that an operation has outside of the group's memory: parts of a reduction, and the
    /// buffer of a transfer.
    fn outside(&self, compiled: &Compiled<'_>, op: usize, group: &Group) -> u64 {
        let in_flight = group.in_flight;
        let laid = &compiled.laid[op];
        let tile = |used: &LaidUse| {
            let store = used.store.map(|store| &self.draft.stores[store as usize]);
            let along = |(&tile, &extent): (&u64, &u64)| tile.min(extent);
            store.map(|store| used.tile.iter().zip(&store.extents).map(along).product::<u64>() * store.element_bytes)
        };
        let driver = laid.driver.map(|driver| &laid.uses[driver]);
        let batches = laid.launch.iter().product::<u64>().max(1);
        match &self.draft.ops[op].body {
            Body::Task(_) => 0,
            // Tiles of the host go through memory that the device can reach.
            Body::Kernel(_) => {
                let on_host = |used: &LaidUse| {
                    let store = &self.draft.stores[used.store? as usize];
                    (!store.is_on_device).then(|| reachable(used.most(&store.extents) * store.element_bytes))
                };
                laid.uses.iter().filter_map(on_host).sum::<u64>().saturating_mul(in_flight.min(batches))
            }
            // A vector grows by doubling. A kernel's parts are copied to the host first.
            Body::Fold(fold, maker) => {
                let (parts, bytes) = (laid.parts_max() * group.chunk, fold.part_bytes().saturating_mul(in_flight));
                let copied =
                    if matches!(maker, PartMaker::Kernel(_)) { reachable(parts * fold.part_bytes()) * in_flight } else { 0 };
                parts.next_power_of_two().max(4).saturating_mul(bytes).saturating_add(copied)
            }
            Body::Transfer(_, is_ordered) => {
                driver.and_then(tile).unwrap_or(0).saturating_mul(if *is_ordered { 1 } else { in_flight })
            }
        }
    }

    /// Returns the shape of a store's tiles, if the largest store has so many.
    fn tile(&self, store: u32, pieces: u64) -> Vec<u64> {
        let known = &self.draft.stores[store as usize];
        if let Some(tile) = &known.tile {
            return tile.iter().zip(&known.extents).map(|(&tile, &extent)| tile.min(extent).max(1)).collect();
        }
        let (rows, unit) = (known.extents[0], self.unit(known.extents[0]));
        let tile = rows.div_ceil(pieces).next_multiple_of(unit).min(rows.max(1)).max(1);
        std::iter::once(tile).chain(known.extents[1..].iter().map(|&along| along.max(1))).collect()
    }

    /// Returns a number of rows of which tiles have a multiple, so that no leaf of a reduction is in two.
    fn unit(&self, rows: u64) -> u64 {
        let folds = self.draft.ops.iter().filter(|op| matches!(op.body, Body::Fold(..)));
        let has_rows = |used: &Use| matches!(used.of, Used::Store(store) if self.draft.stores[store as usize].extents[0] == rows);
        let is_reduced = folds.flat_map(|op| &op.uses).any(has_rows);
        if is_reduced { leaf_rows(self.draft, rows).min(rows.max(1)) } else { 1 }
    }

    /// Returns how many tiles the largest store has.
    fn pieces(&self) -> Result<u64> {
        let settings = self.settings();
        if let Some(factor) = settings.factor {
            return Ok((factor * settings.worker_count()) as u64);
        }
        let largest =
            self.draft.stores.iter().map(|store| store.extents.iter().product::<u64>() * store.element_bytes).max().unwrap_or(0);
        // How many tiles are there at once, if the scope streams.
        let compiled = Compiled::new(self.draft, self.roots, &|store| self.tile(store, 1 << 10))?;
        let streamed = compiled.outline.stream(settings.rule)?;
        let tiles = |group: &crate::tiles::Group| group.windows().iter().filter_map(|window| window.tiles).sum::<u64>();
        let live = streamed.groups().iter().map(tiles).max().unwrap_or(1).max(1);
        let cache = if self.has_device() { DEVICE_CACHE_BYTES } else { cache::cache_bytes() };
        let pieces = largest.div_ceil((cache / live).max(ALIGN));
        Ok(if pieces < TILES_MIN { 1 } else { pieces })
    }

    /// Returns the most tiles that a store can have.
    fn pieces_max(&self) -> u64 {
        self.draft.stores.iter().map(|store| store.extents[0].max(1)).max().unwrap_or(1)
    }
}

/// Returns which store has the most bytes where the most are in memory, as a part of a sentence.
fn largest(streamed: &Streamed) -> String {
    let bytes = |window: &Window| window.tiles.map_or(window.store_bytes, |tiles| tiles.saturating_mul(window.tile_bytes));
    let group = streamed.groups().iter().max_by_key(|group| group.bytes(1));
    let window = group.and_then(|group| group.windows().iter().max_by_key(|window| bytes(window)));
    window.map_or_else(String::new, |window| {
        let name = streamed.outline().store_name(window.store);
        let how = if window.tiles.is_some() { "in tiles" } else { "whole" };
        format!(", of which store '{name}' has {}, {how}", bytes(window))
    })
}

/// Returns the size of a block of the host's memory, of at least so many bytes, that a device can reach.
fn reachable(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(4 << 10)
}
