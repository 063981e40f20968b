//! Where the stores of a group are while it runs, and in how many bytes.

use super::body::{Body, PartMaker};
use super::compile::{Compiled, LaidUse};
use super::draft::Mode;
use super::group::{Access, Group, GroupOp, Region};
use super::memory::{Form, Ring, Storage, aligned};
use crate::tiles::{Group as TileGroup, Place, Window, conflicts, pack};

/// The most operations whose steps have any memory: a round of more takes long enough by itself.
const APART_MAX: usize = 64;
/// The most batches of an operation that a step has. A cancelled scope ends after a step.
const CHUNK_MAX: u64 = 32;
/// The most bytes of all tiles of a batch whose step has several. Larger ones take long enough.
const CHUNKED_BYTES_MAX: u64 = 1 << 20;
/// The least steps for each that is in flight: so no worker waits long for the last one.
const STEPS_MIN: u64 = 8;

/// The most elements that a leaf of a reduction has in any store with as many rows, unless it is one row.
pub(super) const LEAF: u64 = 4096;

impl Compiled<'_> {
    /// Lays out a group with so many batches in flight.
    pub(super) fn lay_out(&self, group: &TileGroup, in_flight: u64, is_chunked: bool) -> Group {
        let ops: Vec<usize> = group.ops().map(|op| op.index()).collect();
        let in_flight = in_flight.min(self.rounds(group, &ops));
        let mut laid = Group {
            ops: Vec::new(),
            storages: Vec::new(),
            in_flight,
            is_apart: self.is_apart(group, &ops),
            chunk: 1,
            host: Region::default(),
            device: Region::default(),
            begins: Vec::new(),
            ends: Vec::new(),
        };
        if is_chunked && laid.is_apart {
            laid.chunk = self.chunk(group, in_flight);
        }
        for is_on_device in [false, true] {
            self.place_stores(&mut laid, group, &ops, is_on_device);
        }
        let places: Vec<Place> = group.places().copied().collect();
        for (&op, place) in ops.iter().zip(&places) {
            let skew = match *place {
                Place::Batches { skew } => skew,
                Place::Once { step } => step,
                Place::Before | Place::All => 0,
            };
            let op = self.op(&mut laid, op, skew);
            laid.ops.push(op);
        }
        for region in [&mut laid.host, &mut laid.device] {
            region.gathered_at = region.bytes;
            region.bytes = region.bytes.saturating_add(region.gathered_bytes.saturating_mul(in_flight));
        }
        laid
    }

    /// Returns how many rounds a group has.
    fn rounds(&self, group: &TileGroup, ops: &[usize]) -> u64 {
        let end = |(place, &op): (&Place, &usize)| match *place {
            Place::Batches { skew } => skew + self.laid[op].launch.iter().product::<u64>().max(1),
            Place::Once { step } => step + 1,
            Place::Before | Place::All => 1,
        };
        group.places().zip(ops).map(end).max().unwrap_or(1)
    }

    /// Returns whether no batch needs another, but those of its own round: then a step may have any memory of
    /// tiles, and several rounds one after the other.
    fn is_apart(&self, group: &TileGroup, ops: &[usize]) -> bool {
        let places = || group.places().zip(ops);
        let of_batches = |(place, &op): (&Place, &usize)| matches!(place, Place::Batches { .. }).then_some(op);
        let batches: Vec<usize> = places().filter_map(of_batches).collect();
        let is_alone = |(at, &op): (usize, &usize)| {
            let needs = |&before: &usize| conflicts(&self.outline, before, op).any(|(_, met)| met.lag > 0 || met.reach > 0);
            self.draft.ops[op].body.is_closure() && !batches[..at].iter().any(needs)
        };
        // Operations that are done once come behind the batches, and read only values that were made once.
        let mut behind = places().skip_while(|(place, _)| !matches!(place, Place::Once { .. }));
        let is_of_scalars = |(place, &op): (&Place, &usize)| {
            matches!(place, Place::Once { .. }) && self.laid[op].uses.iter().all(|used| used.store.is_none())
        };
        (1..=APART_MAX).contains(&batches.len())
            && behind.all(is_of_scalars)
            && group.places().all(|place| !matches!(place, Place::All))
            && batches.iter().enumerate().all(is_alone)
    }

    /// Returns how many batches of each operation a step has, where none needs another: several if they are
    /// small, so that a worker looks for work less often.
    fn chunk(&self, group: &TileGroup, in_flight: u64) -> u64 {
        let of_batch = group.windows().iter().filter(|window| window.tiles.is_some());
        let tiles: u64 = of_batch.map(|window| window.tile_bytes).sum();
        let parts = |op: usize| match &self.draft.ops[op].body {
            Body::Fold(fold, _) => self.laid[op].parts_max().saturating_mul(fold.part_bytes()),
            Body::Task(_) | Body::Kernel(_) | Body::Transfer(..) => 0,
        };
        let bytes = group.ops().map(|op| parts(op.index())).fold(tiles, u64::saturating_add);
        let batches = group.ops().map(|op| self.laid[op.index()].launch.iter().product::<u64>()).max().unwrap_or(1);
        if bytes > CHUNKED_BYTES_MAX { 1 } else { (batches / (in_flight * STEPS_MIN)).clamp(1, CHUNK_MAX) }
    }

    /// Gives each store of the host, or of the device, its storage.
    fn place_stores(&self, laid: &mut Group, group: &TileGroup, ops: &[usize], is_on_device: bool) {
        let is_there = |store: u32| self.draft.stores[store as usize].is_on_device == is_on_device;
        let windows = group.windows().iter().filter_map(|window| Some((self.store_of(window.store)?, window)));
        let windows = windows.filter(|&(store, _)| is_there(store));
        let mut end = 0;
        let [mut own, mut before] = [(); 2].map(|()| Vec::<(usize, Window)>::new());
        for (store, window) in windows {
            let first = self.first_use(store, ops[window.used.0]);
            let form = self.form(store, window, first, ops, laid.in_flight);
            let is_own = matches!(&form, Form::Blocks { .. }) && window.tiles == Some(1);
            let draft = &self.draft.stores[store as usize];
            let (extents, element_bytes) = (draft.extents.clone(), draft.element_bytes);
            let mut storage = Storage { at: None, apart: 0, store, is_on_device, extents, element_bytes, form };
            if is_own {
                own.push((laid.storages.len(), window.clone()));
            } else if window.is_before {
                before.push((laid.storages.len(), window.clone()));
            } else if matches!(storage.form, Form::Whole) && self.is_shared(store) {
                // It has memory of its own.
            } else {
                storage.at = Some(end);
                end = end.saturating_add(aligned(storage.bytes()));
            }
            laid.storages.push(storage);
        }
        // Those that are needed before the batches share memory, and those of one batch.
        let (starts, bytes) = packed(&before, |window| window.store_bytes);
        for ((at, _), start) in before.iter().zip(starts) {
            laid.storages[*at].at = Some(end.saturating_add(start));
        }
        end = end.saturating_add(bytes);
        let (starts, stride) = packed(&own, |window| window.tile_bytes);
        for ((at, _), start) in own.iter().zip(starts) {
            let storage = &mut laid.storages[*at];
            storage.at = Some(end.saturating_add(start));
            if let Form::Blocks { ring, .. } = &mut storage.form {
                ring.stride = stride;
                if laid.is_apart {
                    (ring.blocks, storage.apart) = (1, stride);
                }
            }
        }
        laid.region(is_on_device).bytes = end.saturating_add(stride.saturating_mul(laid.in_flight));
    }

    /// Returns how much of a store is there: `first` is the use that writes it first.
    fn form(&self, store: u32, window: &Window, first: &LaidUse, ops: &[usize], in_flight: u64) -> Form {
        let Some(tiles) = window.tiles else { return Form::Whole };
        let (draft, tile) = (&self.draft.stores[store as usize], first.tile.clone());
        let counts: u64 = tile.iter().zip(&draft.extents).map(|(&tile, &extent)| extent.div_ceil(tile).max(1)).product();
        let ring = (tiles + in_flight - 1).min(counts.max(1));
        let is_of_rows = tile[1..].iter().zip(&draft.extents[1..]).all(|(tile, extent)| tile >= extent);
        let bytes: u64 =
            tile.iter().zip(&draft.extents).map(|(&tile, &extent)| tile.min(extent)).product::<u64>() * draft.element_bytes;
        if tiles == 1 || !is_of_rows {
            // Those of a batch share memory with others of its step, which may be of other batches.
            let (blocks, shift) = if tiles == 1 { (in_flight, window.from_step.unwrap_or(0)) } else { (ring, 0) };
            return Form::Blocks { tile, ring: Ring { blocks, stride: aligned(bytes), shift } };
        }
        // A halo that is longer than a tile is gathered.
        let halo = |side: fn(&LaidUse) -> usize| {
            let uses = ops.iter().flat_map(|&op| &self.laid[op].uses).filter(|used| used.store == Some(store));
            uses.map(|used| side(used) as u64).filter(|&rows| rows <= tile[0]).max().unwrap_or(0)
        };
        let (before, behind) = (halo(|used| used.shape.before[0]), halo(|used| used.shape.behind[0]));
        Form::Rows { tile: tile[0], ring, before, behind }
    }

    fn op(&self, group: &mut Group, number: usize, skew: u64) -> GroupOp {
        let laid = &self.laid[number];
        let mut accesses = Vec::new();
        for used in &laid.uses {
            let Some(store) = used.store else {
                accesses.push(None);
                continue;
            };
            let mut storages = group.storages.iter();
            let at = storages.position(|storage| storage.store == store).expect("a group has all stores that it uses");
            let storage = &group.storages[at];
            let bytes = (!is_always_slice(storage, used)).then(|| used.most(&storage.extents) * storage.element_bytes);
            let along = |(axis, &extent): (usize, &u64)| used.part.of_axis(axis, extent);
            let (axes, is_on_device) = (storage.extents.iter().enumerate().map(along).collect(), storage.is_on_device);
            let blocks = blocks(storage, used, &laid.launch);
            let own = bytes.map(|bytes| group.region(is_on_device).gather(bytes));
            let shape = &used.shape;
            accesses.push(Some(Access {
                storage: at as u32,
                axes,
                is_written: used.mode != Mode::Read,
                is_updated: used.mode == Mode::Update && used.copies_from.is_none(),
                copies_from: used.copies_from,
                blocks,
                gathered: own,
                follows_leaves: !shape.is_whole && !shape.is_transposed,
                around: (shape.by[0] as i64 - shape.before[0] as i64, shape.by[0] as i64 + shape.behind[0] as i64),
            }));
        }
        let (driver, leaf_rows) = (laid.driver.unwrap_or(0) as u32, laid.leaf_rows);
        let batches = laid.launch.iter().product::<u64>().max(1);
        let parts = self.parts_bytes(number).map(|bytes| group.device.gather(bytes));
        GroupOp { number, skew, batches, launch: laid.launch.clone(), accesses, driver, leaf_rows, parts }
    }

    /// Returns the bytes of the parts that a kernel makes of a tile for a reduction.
    fn parts_bytes(&self, number: usize) -> Option<u64> {
        let Body::Fold(fold, PartMaker::Kernel(_)) = &self.draft.ops[number].body else { return None };
        Some(self.laid[number].parts_max() * fold.part_bytes())
    }
}

/// Lays stores out that share memory where they are not used at the same time. Returns where each begins, and
/// the bytes of all.
fn packed(stores: &[(usize, Window)], bytes: impl Fn(&Window) -> u64) -> (Vec<u64>, u64) {
    let block = |(_, window): &(usize, Window)| (window.used.0, window.used.1, aligned(bytes(window)));
    pack(&stores.iter().map(block).collect::<Vec<_>>())
}

/// Returns the ring whose blocks are the tiles that a use has, batch by batch.
fn blocks(storage: &Storage, used: &LaidUse, launch: &[u64]) -> Option<Ring> {
    let Form::Blocks { tile, ring } = &storage.form else { return None };
    let counts = storage.extents.iter().zip(tile).map(|(&extent, &tile)| extent.div_ceil(tile).max(1));
    let is_alike = counts.chain(std::iter::repeat(1)).take(launch.len()).eq(launch.iter().copied());
    (used.shape.is_own() && *tile == used.tile && is_alike).then_some(*ring)
}

/// Returns whether all that a use has of a store is one slice.
fn is_always_slice(storage: &Storage, used: &LaidUse) -> bool {
    let shape = &used.shape;
    let is_full = |axis: usize| used.tile[axis] >= storage.extents[axis] && shape.by[axis] == 0;
    let is_of_rows = shape.is_whole || (1..storage.extents.len()).all(is_full);
    let is_plain = shape.by.iter().all(|&by| by == 0) && !shape.is_whole && !shape.is_transposed;
    match &storage.form {
        Form::Whole => is_of_rows && !shape.is_transposed || shape.is_whole,
        Form::Rows { tile, before, behind, .. } => {
            let fits = shape.before[0] as u64 <= *before && shape.behind[0] as u64 <= *behind;
            is_plain && is_of_rows && *tile == used.tile[0] && fits
        }
        Form::Blocks { tile, .. } => shape.is_own() && *tile == used.tile,
    }
}

impl LaidUse {
    /// Returns the most elements that a batch uses.
    pub(super) fn most(&self, extents: &[u64]) -> u64 {
        if self.shape.is_whole {
            return extents.iter().product();
        }
        let axis_of = |axis: usize| if self.shape.is_transposed { extents.len() - 1 - axis } else { axis };
        let along = |(axis, &extent): (usize, &u64)| {
            let more = (self.shape.before[axis] + self.shape.behind[axis]) as u64;
            (self.tile[axis_of(axis)] + more).min(extent)
        };
        extents.iter().enumerate().map(along).product()
    }
}
