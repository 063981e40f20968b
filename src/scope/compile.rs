//! From a scope to an [`Outline`]: which store is which, what each operation's batches are, and which part of
//! a store each uses.

use super::body::Body;
use super::draft::{Draft, Mode, OpDraft, StoreDraft, Use, Used};
use super::layout::LEAF;
use super::store::Shape;
use crate::error::Result;
use crate::tiles::{Operation, Outline, Part, StoreId};

/// A scope whose operations have batches.
pub(super) struct Compiled<'d> {
    pub(super) draft: &'d Draft,
    pub(super) laid: Vec<LaidOp>,
    pub(super) outline: Outline,
    /// The store of each store of the outline; none for values that are made once.
    stores: Vec<Option<u32>>,
    /// By store: whether it has memory of its own, because several groups use it.
    pub(super) is_shared: Vec<bool>,
}

/// An operation with its batches.
pub(super) struct LaidOp {
    pub(super) uses: Vec<LaidUse>,
    /// Empty: it is done once.
    pub(super) launch: Vec<u64>,
    /// The use whose tiles are its batches.
    pub(super) driver: Option<usize>,
    pub(super) leaf_rows: u64,
}

impl LaidOp {
    /// Returns the most leaves that a batch of a reduction has.
    pub(super) fn parts_max(&self) -> u64 {
        self.driver.map_or(0, |driver| self.uses[driver].tile[0].div_ceil(self.leaf_rows))
    }
}

/// A use with the part of its store.
pub(super) struct LaidUse {
    pub(super) store: Option<u32>,
    scalar: Option<u32>,
    pub(super) mode: Mode,
    pub(super) shape: Shape,
    /// The shape of the tiles, without halo.
    pub(super) tile: Vec<u64>,
    pub(super) part: Part,
    /// The use that has the elements to update, if they are of another store.
    pub(super) copies_from: Option<u32>,
}

/// Which store each is: an update may be the same one.
pub(super) struct Roots(Vec<u32>);

impl Roots {
    /// Finds the updates that change a store where it is: those after which nothing uses the old one.
    pub(super) fn new(draft: &Draft) -> Self {
        let mut roots: Vec<u32> = (0..draft.stores.len() as u32).collect();
        let uses = |op: &OpDraft, store: u32| op.uses.iter().any(|used| used.of == Used::Store(store));
        let is_update = |used: &Use, from: u32| {
            let of = if let Used::Store(store) = used.of { draft.stores[store as usize].updates } else { None };
            used.mode == Mode::Update && of == Some(from)
        };
        let updates = |op: &OpDraft, store: u32| op.uses.iter().any(|used| is_update(used, store));
        for (number, op) in draft.ops.iter().enumerate() {
            for used in op.uses.iter().filter(|used| used.mode == Mode::Update) {
                let Used::Store(store) = used.of else { continue };
                let Some(from) = draft.stores[store as usize].updates else { continue };
                let is_used = uses(op, from) || draft.ops[number + 1..].iter().any(|op| uses(op, from) || updates(op, from));
                if !is_used && !draft.stores[from as usize].is_kept {
                    roots[store as usize] = roots[from as usize];
                }
            }
        }
        Self(roots)
    }

    pub(super) fn of(&self, store: u32) -> u32 {
        self.0[store as usize]
    }

    /// Returns the stores that have memory.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.0.len() as u32).filter(|&store| self.of(store) == store)
    }
}

impl<'d> Compiled<'d> {
    /// Lays out a scope whose stores have tiles of these shapes.
    ///
    /// # Errors
    /// If an operation reads what nothing wrote, or tiles that do not go with those that it writes.
    pub(super) fn new(draft: &'d Draft, roots: &Roots, tile_of: &dyn Fn(u32) -> Vec<u64>) -> Result<Self> {
        let laid: Vec<LaidOp> = draft.ops.iter().map(|op| lay(draft, roots, op, tile_of)).collect::<Result<_>>()?;
        let (mut outline, mut stores) = (Outline::new(), Vec::new());
        let mut store_ids: Vec<Option<StoreId>> = vec![None; draft.stores.len()];
        for store in roots.all() {
            let known = &draft.stores[store as usize];
            let id = outline.store(known.name.clone(), known.extents.clone(), known.element_bytes);
            let is_kept = (0..).zip(&draft.stores).any(|(other, kept)| kept.is_kept && roots.of(other) == store);
            if is_kept {
                outline.keep(id);
            }
            store_ids[store as usize] = Some(id);
            stores.push(Some(store));
        }
        let scalar = |scalar: &super::draft::ScalarDraft| {
            stores.push(None);
            outline.store(scalar.name.clone(), [1], scalar.bytes)
        };
        let scalar_ids: Vec<StoreId> = draft.scalars.iter().map(scalar).collect();
        for (op, laid) in draft.ops.iter().zip(&laid) {
            let new = if laid.launch.is_empty() {
                Operation::once(op.name.clone())
            } else {
                Operation::new(op.name.clone(), laid.launch.clone())
            };
            let id = |used: &LaidUse| match (used.store, used.scalar) {
                (Some(store), _) => store_ids[store as usize].expect("a root has memory"),
                (None, scalar) => scalar_ids[scalar.expect("a store or a scalar") as usize],
            };
            let with = |op: Operation, used: &LaidUse| {
                let (id, part) = (id(used), used.part.clone());
                match &used.mode {
                    Mode::Read => op.read(id, part),
                    Mode::Write => op.write(id, part),
                    Mode::Update => op.read(id, part.clone()).write(id, part),
                    Mode::Reduce(operator) => op.reduce(id, part, operator.clone()),
                }
            };
            outline.op(laid.uses.iter().fold(new, with));
        }
        // The length of a halo, for example.
        outline.check().map_err(|error| draft.fault_of(error.to_string()))?;
        let is_shared = vec![false; draft.stores.len()];
        Ok(Self { draft, laid, outline, stores, is_shared })
    }

    /// Returns the store that one of the outline is.
    pub(super) fn store_of(&self, id: StoreId) -> Option<u32> {
        self.stores[id.index()]
    }

    pub(super) fn is_shared(&self, store: u32) -> bool {
        self.is_shared[store as usize]
    }

    /// Returns the first use that an operation has of a store.
    pub(super) fn first_use(&self, store: u32, op: usize) -> &LaidUse {
        self.laid[op].uses.iter().find(|used| used.store == Some(store)).expect("the window says so")
    }
}

/// Checks all that does not depend on tiles: that settings are in range, that stores are written before they
/// are read, and that no operation reads in one way what it writes in another.
pub(super) fn check(draft: &Draft, roots: &Roots) -> Result<()> {
    let fault = |fault: String| Err(draft.fault_of(fault));
    if let Some(wrong) = draft.settings.fault() {
        return fault(wrong);
    }
    let mut is_written = vec![false; draft.stores.len()];
    for op in &draft.ops {
        let name = &op.name;
        for used in &op.uses {
            let Used::Store(store) = used.of else { continue };
            let root = roots.of(store);
            let known = &draft.stores[store as usize];
            let reads = match used.mode {
                Mode::Read => Some(root),
                Mode::Update => known.updates.map(|from| roots.of(from)),
                _ => None,
            };
            if let Some(read) = reads.filter(|&read| !is_written[read as usize]) {
                let store = &draft.stores[read as usize].name;
                return fault(format!(
                    "operation '{name}' reads store '{store}', which nothing has written: write or load it first"
                ));
            }
            let is_same = |other: &Use| matches!(other.of, Used::Store(other) if roots.of(other) == root);
            if used.mode != Mode::Read && op.uses.iter().filter(|other| is_same(other)).count() > 1 {
                let store = &known.name;
                return fault(format!(
                    "operation '{name}' reads store '{store}' and writes it: update it, or write another store"
                ));
            }
        }
        for used in op.uses.iter().filter(|used| used.mode != Mode::Read) {
            if let Used::Store(store) = used.of {
                is_written[roots.of(store) as usize] = true;
            }
        }
    }
    let kept = draft.stores.iter().zip(0..).find(|(store, number)| store.is_kept && !is_written[roots.of(*number) as usize]);
    kept.map_or(Ok(()), |(store, _)| {
        fault(format!("store '{}' is kept, and nothing has written it: write or load it first", store.name))
    })
}

/// Finds the batches of an operation, and the part of each store that they use.
fn lay(draft: &Draft, roots: &Roots, op: &OpDraft, tile_of: &dyn Fn(u32) -> Vec<u64>) -> Result<LaidOp> {
    let fault = |fault: String| draft.fault_of(format!("operation '{}' {fault}", op.name));
    let store_of = |used: &Use| if let Used::Store(store) = used.of { Some(roots.of(store)) } else { None };
    let is_driver = |used: &Use| match op.body {
        Body::Task(_) | Body::Kernel(_) => used.mode != Mode::Read,
        Body::Fold(..) | Body::Transfer(..) => used.shape.is_own(),
    };
    let driver = op.uses.iter().position(|used| store_of(used).is_some() && is_driver(used));
    if driver.is_none() && matches!(op.body, Body::Fold(..)) {
        return Err(fault("is a reduction and reads no store tile by tile: read `&store` first".into()));
    }
    let driving = driver.and_then(|at| store_of(&op.uses[at]));
    let axes = op.uses.iter().filter_map(store_of).map(|store| draft.stores[store as usize].extents.len()).max().unwrap_or(1);
    let tile = driving.map(tile_of).unwrap_or_default();
    let launch: Vec<u64> = driving.map_or_else(Vec::new, |store| {
        let counts = draft.stores[store as usize].extents.iter().zip(&tile).map(|(&extent, &tile)| extent.div_ceil(tile).max(1));
        counts.chain(std::iter::repeat(1)).take(axes).collect()
    });
    let mut uses = Vec::new();
    for used in &op.uses {
        let (store, scalar) = (store_of(used), if let Used::Scalar(scalar) = used.of { Some(scalar) } else { None });
        let own = match store {
            Some(store) if !used.shape.is_whole => {
                let driving = driving.ok_or_else(|| {
                    let name = &draft.stores[store as usize].name;
                    fault(format!("is done once and reads tiles of store '{name}': read `{name}.whole()`"))
                })?;
                Some(tile_with(draft, store, &used.shape, driving, &tile).map_err(fault)?)
            }
            _ => None,
        };
        let part = own.as_ref().map_or_else(Part::whole, |own| part(own, &used.shape));
        let extents = store.map(|store| draft.stores[store as usize].extents.clone());
        let tile = own.or(extents).unwrap_or_else(|| vec![1]);
        uses.push(LaidUse { store, scalar, mode: used.mode.clone(), shape: used.shape.clone(), tile, part, copies_from: None });
    }
    add_copies(draft, roots, op, &mut uses);
    if let (Body::Fold(..), Some(store)) = (&op.body, driving) {
        cuts_no_leaf(draft, store, &tile).map_err(fault)?;
    }
    let leaf_rows = driving.map_or(1, |store| leaf_rows(draft, draft.stores[store as usize].extents[0]));
    Ok(LaidOp { uses, launch, driver, leaf_rows })
}

/// An update of a store that is used afterwards reads that one, and writes another.
fn add_copies(draft: &Draft, roots: &Roots, op: &OpDraft, uses: &mut Vec<LaidUse>) {
    for at in 0..op.uses.len() {
        let (Used::Store(store), Mode::Update) = (op.uses[at].of, &op.uses[at].mode) else { continue };
        let from = draft.stores[store as usize].updates.map(|from| roots.of(from));
        let Some(from) = from.filter(|&from| from != roots.of(store)) else { continue };
        uses[at].mode = Mode::Write;
        uses[at].copies_from = Some(uses.len() as u32);
        let LaidUse { shape, tile, part, .. } = &uses[at];
        let (shape, tile, part) = (shape.clone(), tile.clone(), part.clone());
        uses.push(LaidUse { store: Some(from), scalar: None, mode: Mode::Read, shape, tile, part, copies_from: None });
    }
}

/// Returns how many rows a leaf of a store with so many `rows` has. It has at most [`LEAF`] elements in each
/// store with as many, because their tiles go together: else a reduction of one with short rows would need
/// large tiles of the others.
pub(super) fn leaf_rows(draft: &Draft, rows: u64) -> u64 {
    let alike = draft.stores.iter().filter(|store| store.extents[0] == rows);
    let longest = alike.map(|store| store.extents[1..].iter().product()).max().unwrap_or(1).max(1);
    1 << (LEAF / longest).max(1).ilog2()
}

/// Checks that the tiles of a store cut no leaf of a reduction.
fn cuts_no_leaf(draft: &Draft, store: u32, tile: &[u64]) -> Result<(), String> {
    let StoreDraft { name, extents, .. } = &draft.stores[store as usize];
    let rows = leaf_rows(draft, extents[0]);
    let is_of_rows = tile.iter().zip(extents).skip(1).all(|(tile, extent)| tile >= extent);
    if is_of_rows && (tile[0].is_multiple_of(rows) || tile[0] >= extents[0]) {
        return Ok(());
    }
    Err(format!(
        "is a reduction, and the tiles of store '{name}' cut its leaves, which have {rows} rows: let the tiles have whole rows, and {rows} or a multiple of them"
    ))
}

/// Returns the shape of the tiles of a store that go with those of the driving one.
fn tile_with(draft: &Draft, store: u32, shape: &Shape, driving: u32, tile: &[u64]) -> Result<Vec<u64>, String> {
    let (own, other) = (&draft.stores[store as usize], &draft.stores[driving as usize]);
    let mut extents = own.extents.clone();
    if shape.is_transposed {
        extents.reverse();
    }
    if extents == other.extents {
        return Ok(tile.to_vec());
    }
    let is_of_rows = tile[1..].iter().zip(&other.extents[1..]).all(|(tile, extent)| tile >= extent);
    if !shape.is_transposed && is_of_rows && own.extents[0] == other.extents[0] {
        return Ok(std::iter::once(tile[0]).chain(own.extents[1..].iter().copied()).map(|along| along.max(1)).collect());
    }
    let (own_name, other_name) = (&own.name, &other.name);
    if shape.is_transposed {
        return Err(format!(
            "reads transposed tiles of store '{own_name}', which are those of a store of {extents:?}, and store '{other_name}' has {:?}: let both be the same",
            other.extents
        ));
    }
    let with = format!("whose shape {:?} does not go with that of store '{other_name}', {:?}", own.extents, other.extents);
    Err(format!("reads tiles of store '{own_name}', {with}: read `{own_name}.whole()`, or let both have as many rows"))
}

fn part(tile: &[u64], shape: &Shape) -> Part {
    let part = Part::tiles(tile.to_vec());
    if shape.is_transposed {
        return part.transposed();
    }
    let to_u64 = |of: &[usize]| of.iter().map(|&along| along as u64).collect::<Vec<u64>>();
    part.offset(shape.by.iter().map(|&by| by as i64).collect::<Vec<_>>()).halo(to_u64(&shape.before), to_u64(&shape.behind))
}
