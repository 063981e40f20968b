//! Array programs as data: as a scope, and evaluated on whole arrays, one element at a time.

use std::sync::{Arc, Mutex};

use anabranch::Graph;
use anabranch::graph::Value;
use anabranch::scope::{Array, DeviceStore, Kept, Scalar, Scope, Store, Streaming, Sum, Tile, TileMut, TilePlace, View};

use super::kernels;

/// The elements of a store that an element depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach<const N: usize> {
    Own,
    Halo([usize; N], [usize; N]),
    Shifted([isize; N]),
    Transposed,
    Whole,
}

/// An operation. Stores and scalars are numbered in the order in which they are made.
#[derive(Clone, Debug)]
pub(crate) enum Action<const N: usize> {
    Fill {
        seed: u64,
    },
    Load {
        seed: u64,
    },
    Map {
        from: Vec<(usize, Reach<N>)>,
        to: Option<usize>,
    },
    Update {
        from: usize,
        seed: u64,
    },
    Add {
        from: usize,
        scalar: usize,
    },
    Fold {
        from: usize,
        halo: bool,
    },
    Half {
        scalar: usize,
    },
    Save {
        from: usize,
    },
    /// The same on a device. Its stores have numbers of their own.
    Device(OnDevice<N>),
}

#[derive(Clone, Debug)]
pub(crate) enum OnDevice<const N: usize> {
    Fill {
        seed: u64,
    },
    Upload {
        from: usize,
    },
    Map {
        from: Vec<(usize, Reach<N>)>,
        to: Option<usize>,
    },
    Update {
        from: usize,
        seed: u64,
    },
    Fold {
        from: usize,
        halo: bool,
    },
    /// Copies to a new store of the host.
    Download {
        from: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Program<const N: usize> {
    pub(crate) shape: [usize; N],
    /// The shape of all tiles, if it is given.
    pub(crate) tile: Option<[usize; N]>,
    pub(crate) actions: Vec<Action<N>>,
    /// The stores that are kept.
    pub(crate) kept: [usize; 2],
}

/// The results of a program: two arrays, the bits of all scalars, and the saved arrays.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Results {
    pub(crate) kept: [Vec<u64>; 2],
    pub(crate) scalars: Vec<u64>,
    pub(crate) saved: Vec<Vec<u64>>,
}

pub(crate) fn mix(one: u64, other: u64) -> u64 {
    let word = (one ^ other.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 29)
}

pub(crate) fn linear<const N: usize>(at: [usize; N], shape: [usize; N]) -> usize {
    at.iter().zip(shape).fold(0, |sum, (&at, along)| sum * along + at)
}

/// Returns all points of a box, in order.
pub(crate) fn points<const N: usize>(start: [usize; N], shape: [usize; N]) -> impl Iterator<Item = [usize; N]> {
    let count: usize = shape.iter().product();
    (0..count).map(move |number| {
        let (mut at, mut rest) = ([0; N], number);
        for axis in (0..N).rev() {
            (at[axis], rest) = (start[axis] + rest % shape[axis], rest / shape[axis]);
        }
        at
    })
}

/// Returns the new value of an element, from those that it depends on.
pub(crate) fn reached<const N: usize>(
    reach: Reach<N>,
    at: [usize; N],
    shape: [usize; N],
    get: impl Fn([usize; N]) -> u64,
) -> u64 {
    match reach {
        Reach::Own => get(at),
        Reach::Transposed => get(std::array::from_fn(|axis| at[N - 1 - axis])),
        Reach::Shifted(by) => {
            let moved: [isize; N] = std::array::from_fn(|axis| at[axis] as isize + by[axis]);
            let is_in = (0..N).all(|axis| (0..shape[axis] as isize).contains(&moved[axis]));
            if is_in { get(std::array::from_fn(|axis| moved[axis] as usize)) } else { 7 }
        }
        Reach::Halo(before, behind) => {
            let start: [usize; N] = std::array::from_fn(|axis| at[axis].saturating_sub(before[axis]));
            let size = std::array::from_fn(|axis| (at[axis] + behind[axis] + 1).min(shape[axis]) - start[axis]);
            points(start, size).fold(1, |sum, at| mix(sum, get(at)))
        }
        Reach::Whole => {
            let place = linear(at, shape);
            let point = |number: usize| {
                let mut rest = number % shape.iter().product::<usize>();
                let mut at = [0; N];
                for axis in (0..N).rev() {
                    (at[axis], rest) = (rest % shape[axis], rest / shape[axis]);
                }
                at
            };
            mix(get(point(place * 7 + 3)), get(point(place / 2)))
        }
    }
}

pub(crate) fn as_float(value: u64) -> f64 {
    (value >> 12) as f64 * 1e-9 - 3.0
}

pub(crate) fn filled(seed: u64, place: usize) -> u64 {
    mix(seed, place as u64)
}

impl<const N: usize> Program<N> {
    /// Returns the results, computed on whole arrays.
    pub(crate) fn results(&self) -> Results {
        let (mut stores, mut scalars, mut saved): (Vec<Vec<u64>>, Vec<f64>, _) = (Vec::new(), Vec::new(), Vec::new());
        let mut on_device: Vec<Vec<u64>> = Vec::new();
        for action in &self.actions {
            match action {
                Action::Fill { seed } | Action::Load { seed } => stores.push(self.filled(*seed)),
                Action::Map { from, to } => self.mapped(&mut stores, from, *to),
                Action::Update { from, seed } => stores.push(self.updated(&stores[*from], *seed)),
                Action::Add { from, scalar } => {
                    let scalar = scalars[*scalar];
                    stores.push(stores[*from].iter().map(|&value| mix(value, scalar.to_bits())).collect());
                }
                Action::Fold { from, halo } => scalars.push(self.folded(&stores[*from], *halo)),
                Action::Half { scalar } => scalars.push(scalars[*scalar] * 0.5),
                Action::Save { from } => saved.push(stores[*from].clone()),
                Action::Device(action) => match action {
                    OnDevice::Fill { seed } => on_device.push(self.filled(*seed)),
                    OnDevice::Upload { from } => on_device.push(stores[*from].clone()),
                    OnDevice::Map { from, to } => self.mapped(&mut on_device, from, *to),
                    OnDevice::Update { from, seed } => on_device.push(self.updated(&on_device[*from], *seed)),
                    OnDevice::Fold { from, halo } => scalars.push(self.folded(&on_device[*from], *halo)),
                    OnDevice::Download { from } => stores.push(on_device[*from].clone()),
                },
            }
        }
        let scalars = scalars.into_iter().map(f64::to_bits).collect();
        Results { kept: self.kept.map(|store| stores[store].clone()), scalars, saved }
    }

    fn filled(&self, seed: u64) -> Vec<u64> {
        points([0; N], self.shape).map(|at| filled(seed, linear(at, self.shape))).collect()
    }

    fn updated(&self, store: &[u64], seed: u64) -> Vec<u64> {
        store.iter().zip(0..).map(|(&value, place)| updated(value, seed, place)).collect()
    }

    fn mapped(&self, stores: &mut Vec<Vec<u64>>, from: &[(usize, Reach<N>)], to: Option<usize>) {
        let shape = self.shape;
        let element = |at| {
            let reached = |&(store, reach): &(usize, Reach<N>)| reached(reach, at, shape, |at| stores[store][linear(at, shape)]);
            from.iter().fold(5, |sum, from| mix(sum, reached(from)))
        };
        let made = points([0; N], shape).map(element).collect();
        match to {
            Some(to) => stores[to] = made,
            None => stores.push(made),
        }
    }

    /// Leaves of at most 4096 elements in whole rows, a power of two, combined in order.
    fn folded(&self, store: &[u64], halo: bool) -> f64 {
        let shape = self.shape;
        let width: usize = shape[1..].iter().product();
        let rows = 1 << (4096 / width).max(1).ilog2();
        let mut sum = 0.0;
        for first in (0..shape[0]).step_by(rows) {
            let more = usize::from(halo);
            let (start, end) = (first.saturating_sub(more), (first + rows).min(shape[0]).saturating_add(more).min(shape[0]));
            sum += store[start * width..end * width].iter().map(|&value| as_float(value)).sum::<f64>();
        }
        sum
    }

    /// Adds the program to a graph as a scope. Returns its values, and the list of saved arrays.
    pub(crate) fn scope(&self, g: &mut Graph, streaming: Streaming) -> (Values<N>, Saved) {
        let saved = Saved::default();
        let values = g.scope("program", streaming, |s| self.build(s, &saved));
        (values, saved)
    }

    fn build(&self, s: &mut Scope, saved: &Saved) -> (Kept<u64, N>, Kept<u64, N>, Scalar<Vec<u64>>) {
        let (shape, mut stores, mut scalars) = (self.shape, Vec::<Store<u64, N>>::new(), Vec::<Scalar<f64>>::new());
        let mut on_device: Vec<DeviceStore<u64, N>> = Vec::new();
        for action in &self.actions {
            match action {
                Action::Fill { seed } => {
                    let (store, seed) = (self.store(s, stores.len()), *seed);
                    s.write("fill", (), &store, move |mut tile: TileMut<u64, N>| {
                        each(&mut tile, |at, _| filled(seed, linear(at, shape)));
                    });
                    stores.push(store);
                }
                Action::Load { seed } => {
                    let (store, seed) = (self.store(s, stores.len()), *seed);
                    let load = move |place: TilePlace<N>, mut buffer: Vec<u64>| async move {
                        for (value, at) in buffer.iter_mut().zip(points(place.start, place.shape)) {
                            *value = filled(seed, linear(at, shape));
                        }
                        Ok(buffer)
                    };
                    match seed % 2 {
                        0 => s.load("load", &store, load),
                        _ => s.load_unordered("load", &store, load),
                    }
                    stores.push(store);
                }
                Action::Map { from, to } => {
                    let store = to.map_or_else(|| self.store(s, stores.len()), |to| stores[to]);
                    map(s, from, &stores, &store, shape);
                    if to.is_none() {
                        stores.push(store);
                    }
                }
                Action::Update { from, seed } => {
                    let seed = *seed;
                    stores.push(s.update("update", (), &stores[*from], move |mut tile: TileMut<u64, N>| {
                        each(&mut tile, |at, value| updated(value, seed, linear(at, shape)));
                    }));
                }
                Action::Add { from, scalar } => {
                    let store = self.store(s, stores.len());
                    let reads = (&stores[*from], &scalars[*scalar]);
                    s.write("add", reads, &store, |from: Tile<u64, N>, scalar: &f64, mut to: TileMut<u64, N>| {
                        each(&mut to, |at, _| mix(from[at], scalar.to_bits()));
                    });
                    stores.push(store);
                }
                Action::Fold { from, halo } => scalars.push(fold(s, &stores[*from], *halo)),
                Action::Half { scalar } => scalars.push(s.value("half", &scalars[*scalar], |scalar: &f64| scalar * 0.5)),
                Action::Save { from } => save(s, &stores[*from], shape, saved),
                Action::Device(OnDevice::Download { from }) => {
                    let store = self.store(s, stores.len());
                    s.download("down", &on_device[*from], &store);
                    stores.push(store);
                }
                Action::Device(OnDevice::Fold { from, halo }) => {
                    scalars.push(kernels::fold(s, &on_device[*from], shape, *halo));
                }
                Action::Device(action) => self.on_device(s, action, &stores, &mut on_device),
            }
        }
        let bits = scalars.iter().fold(s.value("none", (), Vec::new), |all: Scalar<Vec<u64>>, scalar| {
            s.value("bits", (&all, scalar), |all: &Vec<u64>, scalar: &f64| [&all[..], &[scalar.to_bits()]].concat())
        });
        let [one, other] = self.kept.map(|store| stores[store]);
        (s.keep(&one), s.keep(&other), bits)
    }

    fn on_device(&self, s: &mut Scope, action: &OnDevice<N>, hosts: &[Store<u64, N>], stores: &mut Vec<DeviceStore<u64, N>>) {
        if let OnDevice::Update { from, seed } = action {
            return stores.push(kernels::update(s, &stores[*from], self.shape, *seed));
        }
        let new = s.device_store(format!("d{}", stores.len()), self.shape);
        if let Some(tile) = self.tile {
            s.tiles(&new, tile);
        }
        match action {
            OnDevice::Fill { seed } => kernels::fill(s, &new, self.shape, *seed),
            OnDevice::Upload { from } => s.upload("up", &hosts[*from], &new),
            OnDevice::Map { from, to } => kernels::map(s, from, stores, &to.map_or(new, |to| stores[to]), self.shape),
            _ => unreachable!("they make other things"),
        }
        if !matches!(action, OnDevice::Map { to: Some(_), .. }) {
            stores.push(new);
        }
    }

    fn store(&self, s: &mut Scope, number: usize) -> Store<u64, N> {
        let store = s.store(format!("s{number}"), self.shape);
        if let Some(tile) = self.tile {
            s.tiles(&store, tile);
        }
        store
    }
}

pub(crate) type Values<const N: usize> = (Value<Array<u64, N>>, Value<Array<u64, N>>, Value<Vec<u64>>);
/// The arrays that were saved, by the operation.
pub(crate) type Saved = Arc<Mutex<Vec<Vec<u64>>>>;

pub(crate) fn updated(value: u64, seed: u64, place: usize) -> u64 {
    mix(value, seed.wrapping_add(place as u64))
}

/// Replaces each element of a tile.
fn each<const N: usize>(tile: &mut TileMut<u64, N>, value: impl Fn([usize; N], u64) -> u64) {
    let place = tile.place();
    for (element, at) in tile.as_mut_slice().iter_mut().zip(points(place.start, place.shape)) {
        *element = value(at, *element);
    }
}

pub(super) fn view<const N: usize, M>(store: &Store<u64, N, M>, reach: Reach<N>) -> View<u64, N, M> {
    match reach {
        Reach::Own => store.halo([0; N], [0; N]),
        Reach::Halo(before, behind) => store.halo(before, behind),
        Reach::Shifted(by) => store.shifted(by),
        Reach::Transposed => store.transposed(),
        Reach::Whole => store.whole(),
    }
}

fn map<const N: usize>(
    s: &mut Scope,
    from: &[(usize, Reach<N>)],
    stores: &[Store<u64, N>],
    to: &Store<u64, N>,
    shape: [usize; N],
) {
    match *from {
        [(one, reach)] => {
            let work = move |from: Tile<u64, N>, mut to: TileMut<u64, N>| {
                each(&mut to, |at, _| mix(5, reached(reach, at, shape, |at| from[at])));
            };
            s.write("map", view(&stores[one], reach), to, work);
        }
        [(one, reach), (other, behind)] => {
            let work = move |from: Tile<u64, N>, with: Tile<u64, N>, mut to: TileMut<u64, N>| {
                each(&mut to, |at, _| {
                    mix(mix(5, reached(reach, at, shape, |at| from[at])), reached(behind, at, shape, |at| with[at]))
                });
            };
            s.write("zip", (view(&stores[one], reach), view(&stores[other], behind)), to, work);
        }
        _ => unreachable!("one or two stores are read"),
    }
}

fn fold<const N: usize>(s: &mut Scope, from: &Store<u64, N>, halo: bool) -> Scalar<f64> {
    if !halo {
        return s.fold("sum", from, Sum, |tile: Tile<u64, N>| tile.as_slice().iter().map(|&value| as_float(value)).sum::<f64>());
    }
    let rows = std::array::from_fn(|axis| usize::from(axis == 0));
    let work = |_: Tile<u64, N>, tile: Tile<u64, N>| tile.as_slice().iter().map(|&value| as_float(value)).sum::<f64>();
    s.fold("near", (from, from.halo(rows, rows)), Sum, work)
}

fn save<const N: usize>(s: &mut Scope, from: &Store<u64, N>, shape: [usize; N], saved: &Saved) {
    let number = {
        let mut saved = saved.lock().unwrap();
        saved.push(vec![0; shape.iter().product()]);
        saved.len() - 1
    };
    let saved = saved.clone();
    let work = move |place: TilePlace<N>, tile: Vec<u64>| {
        let saved = saved.clone();
        async move {
            let to = &mut saved.lock().unwrap()[number];
            points(place.start, place.shape).zip(&tile).for_each(|(at, &value)| to[linear(at, shape)] = value);
            Ok(tile)
        }
    };
    match number % 2 {
        0 => s.save("save", from, work),
        _ => s.save_unordered("save", from, work),
    }
}
