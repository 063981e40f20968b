//! Parts: which elements of a store each batch of an operation uses.

use std::fmt;

/// Which elements of a store each batch of an operation uses: all of them, or a tile. (Legate: a partition.)
///
/// Tile c of an axis is the interval from `offset + tile · c` to `offset + tile · (c + 1)`, made larger by
/// its halo and cut where the store ends. The point of a batch in the launch selects its tile: coordinate k
/// along axis k of the tiles.
///
/// ```
/// use anabranch::tiles::Part;
///
/// let rows = Part::tiles([16, 1024]).halo([1, 0], [1, 0]);
/// assert_eq!(rows.to_string(), "tiles of 16×1024, halo 1×0 before and 1×0 behind");
/// assert_eq!(Part::whole().to_string(), "the whole store");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// None: every batch uses all elements.
    tiles: Option<Tiles>,
    /// What was set though there are no tiles: `fault` refuses it.
    set_without: Option<&'static str>,
}

/// By axis of the tiles; all lists are of one length, or `check` fails.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Tiles {
    tile: Vec<u64>,
    offset: Vec<i64>,
    before: Vec<u64>,
    behind: Vec<u64>,
    /// The axes of the store.
    axes: Vec<usize>,
    /// The axes of the launch.
    by: Vec<usize>,
}

/// The tiles along one axis of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct AxisTiles {
    pub(super) tile: i64,
    pub(super) offset: i64,
    pub(super) before: i64,
    pub(super) behind: i64,
    /// The axis of the launch that counts them.
    pub(super) by: usize,
}

impl AxisTiles {
    /// Returns the elements of a tile with its halo.
    pub(super) fn size(&self) -> u64 {
        (self.tile + self.before + self.behind) as u64
    }

    /// Returns the interval of a tile, cut to the store. It is empty if the end is not above the start.
    #[inline]
    pub(super) fn interval(&self, at: i64, extent: i64) -> (i64, i64) {
        let start = self.offset + self.tile * at;
        ((start - self.before).max(0), (start + self.tile + self.behind).min(extent))
    }
}

/// A part along one axis of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// None: all elements.
    tiles: Option<AxisTiles>,
    pub(crate) extent: u64,
}

impl Along {
    /// Returns the elements of a batch: the first, and one behind the last. `point` is the batch's point in
    /// the launch.
    #[inline]
    pub(crate) fn elements(&self, point: &[u64]) -> (u64, u64) {
        let extent = self.extent as i64;
        let (start, end) = self.tiles.map_or((0, extent), |tiles| tiles.interval(point[tiles.by] as i64, extent));
        let start = start.clamp(0, extent);
        (start as u64, end.clamp(start, extent) as u64)
    }
}

/// The largest number that a part may have.
const NUMBER_MAX: u64 = 1 << 40;
/// The largest position of a tile's end.
const END_MAX: u64 = 1 << 60;

impl Part {
    /// Every batch uses all elements. Only tiles have an offset, a halo and axes: to set them on this is an
    /// error of [`Outline::stream`](super::Outline::stream).
    pub fn whole() -> Self {
        Self { tiles: None, set_without: None }
    }

    /// Batches use tiles of this shape, next to each other.
    pub fn tiles(shape: impl Into<Vec<u64>>) -> Self {
        let tile = shape.into();
        let axes: Vec<usize> = (0..tile.len()).collect();
        let (offset, none) = (vec![0; tile.len()], vec![0; tile.len()]);
        let tiles = Tiles { offset, before: none.clone(), behind: none, by: axes.clone(), axes, tile };
        Self { tiles: Some(tiles), set_without: None }
    }

    /// Moves all tiles, by elements along each axis.
    pub fn offset(self, offset: impl Into<Vec<i64>>) -> Self {
        self.with("offset", |tiles| tiles.offset = offset.into())
    }

    /// Makes all tiles larger: by these elements along each axis, before their first one and behind their
    /// last one.
    pub fn halo(self, before: impl Into<Vec<u64>>, behind: impl Into<Vec<u64>>) -> Self {
        self.with("halo", |tiles| (tiles.before, tiles.behind) = (before.into(), behind.into()))
    }

    /// Takes the tiles from the transposed store: the axes of the tiles are those of the store, backwards.
    pub fn transposed(self) -> Self {
        self.with("transpose", |tiles| tiles.axes.reverse())
    }

    /// Lets these axes of the launch count the tiles, instead of axis k those along axis k.
    pub fn by(self, axes: impl Into<Vec<usize>>) -> Self {
        self.with("`by`", |tiles| tiles.by = axes.into())
    }

    /// Returns whether every batch uses all elements.
    pub fn is_whole(&self) -> bool {
        self.tiles.is_none()
    }

    fn with(mut self, what: &'static str, set: impl FnOnce(&mut Tiles)) -> Self {
        match &mut self.tiles {
            Some(tiles) => set(tiles),
            None => self.set_without = self.set_without.or(Some(what)),
        }
        self
    }

    /// Returns the tiles along an axis of the store; None if every batch has all of it.
    pub(super) fn along(&self, axis: usize) -> Option<AxisTiles> {
        let tiles = self.tiles.as_ref()?;
        let at = tiles.axes.iter().position(|&of| of == axis)?;
        Some(AxisTiles {
            tile: tiles.tile[at] as i64,
            offset: tiles.offset[at],
            before: tiles.before[at] as i64,
            behind: tiles.behind[at] as i64,
            by: tiles.by[at],
        })
    }

    /// Returns the part along an axis of a store that has so many elements there.
    pub(crate) fn of_axis(&self, axis: usize, extent: u64) -> Along {
        Along { tiles: self.along(axis), extent }
    }

    /// Returns whether Legate takes two partitions as equal: it compares the shapes of tiles and how many
    /// there are, and no offsets.
    pub(super) fn is_equal_to_legate(&self, launch: &[u64], other: &Self, other_launch: &[u64]) -> bool {
        let seen = |part: &Self, launch: &[u64]| {
            let Tiles { tile, before, behind, by, .. } = part.tiles.clone()?;
            let colors: Vec<u64> = by.iter().map(|&axis| launch[axis]).collect();
            Some((tile, before, behind, colors))
        };
        seen(self, launch) == seen(other, other_launch)
    }

    /// Returns why the part does not fit a store and a launch.
    pub(super) fn fault(&self, extents: &[u64], launch: &[u64]) -> Option<String> {
        if let Some(what) = self.set_without {
            return Some(format!("whole, with {what}: set it on `Part::tiles`, or leave it out"));
        }
        let Tiles { tile, offset, before, behind, axes, by } = self.tiles.as_ref()?;
        let plural = |count: usize| if count == 1 { "1 axis".to_owned() } else { format!("{count} axes") };
        if tile.len() != extents.len() {
            let (own, others) = (plural(tile.len()), plural(extents.len()));
            return Some(format!(
                "in tiles of {own}, and the store has {others}: give tiles a size along each axis of the store"
            ));
        }
        let lengths = [("offset", offset.len()), ("halo", before.len()), ("halo", behind.len()), ("`by`", by.len())];
        if let Some((what, length)) = lengths.into_iter().find(|&(_, length)| length != axes.len()) {
            let (own, others) = (plural(length), plural(axes.len()));
            return Some(format!("with {what} of {own}, and the tiles have {others}: give a number for each axis of the tiles"));
        }
        if let Some(axis) = by.iter().find(|&&axis| axis >= launch.len()) {
            let launched = plural(launch.len());
            return Some(format!(
                "in tiles that axis {axis} of the launch counts, and the launch has {launched}: \
                 launch over more axes, or choose others with `by`"
            ));
        }
        let is_large = |number: &u64| *number > NUMBER_MAX;
        let is_far = |(&tile, &by): (&u64, &usize)| tile.saturating_mul(launch[by]) > END_MAX;
        let mut numbers =
            tile.iter().chain(before).chain(behind).copied().chain(offset.iter().map(|offset| offset.unsigned_abs()));
        match () {
            () if tile.contains(&0) => Some("in tiles without elements: give them at least one along each axis".into()),
            () if numbers.any(|number| is_large(&number)) => {
                Some("with a number above 2^40: make its tiles, halo or offset smaller".into())
            }
            () if tile.iter().zip(by).any(is_far) => {
                Some("in tiles that end beyond 2^60: make them smaller, or launch fewer batches".into())
            }
            () => None,
        }
    }
}

/// Returns numbers as an array's shape.
pub(super) fn shape<N: fmt::Display>(numbers: &[N]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Tiles { tile, offset, before, behind, axes, by }) = &self.tiles else { return f.write_str("the whole store") };
        write!(f, "tiles of {}", shape(tile))?;
        if offset.iter().any(|&offset| offset != 0) {
            write!(f, ", offset {}", shape(offset))?;
        }
        if before.iter().chain(behind).any(|&halo| halo != 0) {
            write!(f, ", halo {} before and {} behind", shape(before), shape(behind))?;
        }
        if !axes.is_sorted() {
            f.write_str(", transposed")?;
        }
        if by.iter().enumerate().any(|(axis, &by)| axis != by) {
            write!(f, ", by axes {by:?} of the launch")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({self})")
    }
}
