//! Kernels for a device that are equivalent to the host operations of random programs. A kernel reads its
//! task as words from a buffer, so two functions suffice for all programs.

use std::sync::LazyLock;

use anabranch::device::{BufferSlice, In, Kernel, Launch, Out};
use anabranch::scope::{DeviceStore, DeviceTile, DeviceTileMut, Parts, Scalar, Scope, Sum, TilePlace};
use anabranch::{BoxError, DeviceStream};

use super::program::{Reach, as_float, filled, linear, mix, points, reached, updated, view};

/// Two inputs, the output, the words of the task, and their lengths.
type Elements = Kernel<(In<u64>, In<u64>, Out<u64>, In<u64>, u32, u32, u32, u32)>;
/// The input, the parts, the words of the task, and their lengths.
type Fold = Kernel<(In<u64>, Out<f64>, In<u64>, u32, u32, u32)>;

static ELEMENTS: LazyLock<Elements> = LazyLock::new(|| {
    // SAFETY: the kernel has these parameters, with the lengths of the buffers. Only the software driver,
    // which has a function of this name, can load it; no GPU can.
    unsafe { Elements::ptx("scope_elements", PTX) }.twin(|_, (one, other, to, words, ..)| elements(one, other, to, words))
});

static FOLD: LazyLock<Fold> = LazyLock::new(|| {
    // SAFETY: the kernel has these parameters, with the lengths of the buffers. Only the software driver,
    // which has a function of this name, can load it; no GPU can.
    unsafe { Fold::ptx("scope_fold", PTX) }.twin(|_, (from, parts, words, ..)| fold_leaves(from, parts, words))
});

/// The names of the kernels, for the software driver.
const PTX: &str = ".version 6.0\n.target sm_52\n.address_size 64\n\
    .visible .entry scope_elements() { ret; }\n.visible .entry scope_fold() { ret; }\n";

/// The task of a kernel on a tile.
#[derive(Clone, Copy)]
enum What {
    Fill(u64),
    /// Reads this many inputs.
    Map(usize),
    Update(u64),
}

/// The words of a task, in the order in which they are written and read.
#[derive(Default)]
struct Words(Vec<u64>);

impl Words {
    fn put<const N: usize>(&mut self, values: [usize; N]) {
        self.0.extend(values.map(|value| value as u64));
    }

    fn place<const N: usize>(&mut self, place: TilePlace<N>) {
        self.put(place.start);
        self.put(place.shape);
    }

    fn reach<const N: usize>(&mut self, reach: Reach<N>) {
        let (kind, one, other) = match reach {
            Reach::Own => (0, [0; N], [0; N]),
            Reach::Halo(before, behind) => (1, before, behind),
            Reach::Shifted(by) => (2, by.map(|by| by as usize), [0; N]),
            Reach::Transposed => (3, [0; N], [0; N]),
            Reach::Whole => (4, [0; N], [0; N]),
        };
        self.0.push(kind);
        self.put(one);
        self.put(other);
    }
}

/// The words that are not read yet.
struct Read<'w>(&'w [u64]);

impl Read<'_> {
    fn one(&mut self) -> u64 {
        let (first, rest) = self.0.split_first().unwrap();
        self.0 = rest;
        *first
    }

    fn put<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| self.one() as usize)
    }

    fn reach<const N: usize>(&mut self) -> Reach<N> {
        let (kind, one, other) = (self.one(), self.put::<N>(), self.put::<N>());
        match kind {
            0 => Reach::Own,
            1 => Reach::Halo(one, other),
            2 => Reach::Shifted(one.map(|by| by as isize)),
            3 => Reach::Transposed,
            _ => Reach::Whole,
        }
    }
}

/// The function of the kernel `scope_elements`.
pub(crate) fn elements(one: &[u64], other: &[u64], to: &mut [u64], words: &[u64]) {
    match words[0] {
        1 => elements_in::<1>(one, other, to, Read(&words[1..])),
        2 => elements_in::<2>(one, other, to, Read(&words[1..])),
        _ => elements_in::<3>(one, other, to, Read(&words[1..])),
    }
}

fn elements_in<const N: usize>(one: &[u64], other: &[u64], to: &mut [u64], mut words: Read<'_>) {
    let (what, number, shape) = (words.one(), words.one(), words.put::<N>());
    let (start, along) = (words.put::<N>(), words.put::<N>());
    let inputs: Vec<_> = (0..if what == 1 { number } else { 0 })
        .zip([one, other])
        .map(|(_, from)| (from, words.reach::<N>(), words.put::<N>(), words.put::<N>()))
        .collect();
    for (to, at) in to.iter_mut().zip(points(start, along)) {
        *to = match what {
            0 => filled(number, linear(at, shape)),
            1 => inputs.iter().fold(5, |sum, &(from, reach, start, along)| {
                let get = |at: [usize; N]| from[linear(std::array::from_fn(|axis| at[axis] - start[axis]), along)];
                mix(sum, reached(reach, at, shape, get))
            }),
            _ => updated(*to, number, linear(at, shape)),
        };
    }
}

/// The function of the kernel `scope_fold`. The words are the rows, the width, the rows of a leaf, the begin
/// and the end of the tile, the begin of the input, and the rows that a leaf reads on each side.
pub(crate) fn fold_leaves(from: &[u64], parts: &mut [f64], words: &[u64]) {
    let [rows, width, leaf, first, last, start, around] = [0, 1, 2, 3, 4, 5, 6].map(|at| words[at] as usize);
    for (number, part) in parts.iter_mut().enumerate() {
        let begin = first + number * leaf;
        let (begin, end) = (begin.saturating_sub(around), ((begin + leaf).min(last) + around).min(rows));
        let elements = &from[(begin - start) * width..(end - start) * width];
        *part = elements.iter().map(|&value| as_float(value)).sum();
    }
}

type Input<'a, const N: usize> = (&'a DeviceTile<'a, u64, N>, Reach<N>);

fn launch<const N: usize>(
    s: &mut DeviceStream,
    what: What,
    shape: [usize; N],
    inputs: &[Input<'_, N>],
    to: &mut DeviceTileMut<'_, u64, N>,
) -> Result<(), BoxError> {
    let mut words = Words(vec![N as u64]);
    let (kind, number) = match what {
        What::Fill(seed) => (0, seed),
        What::Map(count) => (1, count as u64),
        What::Update(seed) => (2, seed),
    };
    words.0.extend([kind, number]);
    words.put(shape);
    words.place(to.place());
    for (tile, reach) in inputs {
        words.reach(*reach);
        words.place(tile.place());
    }
    let none = s.alloc::<u64>(0)?;
    let input = |at: usize| inputs.get(at).map_or::<&BufferSlice<u64>, _>(&none, |(tile, _)| tile);
    let (one, other, len) = (input(0), input(1), to.len());
    let (words, lens) = (s.upload(&words.0)?, [one.len(), other.len(), len].map(|len| len as u32));
    let count = words.len() as u32;
    Ok(s.launch(&ELEMENTS, Launch::for_len(len), (one, other, to, &words, lens[0], lens[1], lens[2], count))?)
}

pub(super) fn fill<const N: usize>(s: &mut Scope, to: &DeviceStore<u64, N>, shape: [usize; N], seed: u64) {
    s.write_kernel("device fill", (), to, move |s: &mut DeviceStream, mut to: DeviceTileMut<u64, N>| {
        launch(s, What::Fill(seed), shape, &[], &mut to)
    });
}

pub(super) fn update<const N: usize>(
    s: &mut Scope,
    from: &DeviceStore<u64, N>,
    shape: [usize; N],
    seed: u64,
) -> DeviceStore<u64, N> {
    s.update_kernel("device update", (), from, move |s: &mut DeviceStream, mut to: DeviceTileMut<u64, N>| {
        launch(s, What::Update(seed), shape, &[], &mut to)
    })
}

pub(super) fn map<const N: usize>(
    s: &mut Scope,
    from: &[(usize, Reach<N>)],
    stores: &[DeviceStore<u64, N>],
    to: &DeviceStore<u64, N>,
    shape: [usize; N],
) {
    match *from {
        [(one, reach)] => {
            let work = move |s: &mut DeviceStream, from: DeviceTile<u64, N>, mut to: DeviceTileMut<u64, N>| {
                launch(s, What::Map(1), shape, &[(&from, reach)], &mut to)
            };
            s.write_kernel("device map", view(&stores[one], reach), to, work);
        }
        [(one, reach), (other, behind)] => {
            let reads = (view(&stores[one], reach), view(&stores[other], behind));
            let work =
                move |s: &mut DeviceStream, from: DeviceTile<u64, N>, with: DeviceTile<u64, N>, mut to: DeviceTileMut<u64, N>| {
                    launch(s, What::Map(2), shape, &[(&from, reach), (&with, behind)], &mut to)
                };
            s.write_kernel("device zip", reads, to, work);
        }
        _ => unreachable!("one or two stores are read"),
    }
}

pub(super) fn fold<const N: usize>(s: &mut Scope, from: &DeviceStore<u64, N>, shape: [usize; N], halo: bool) -> Scalar<f64> {
    let rows = std::array::from_fn(|axis| usize::from(axis == 0));
    let around = usize::from(halo);
    let launch = move |s: &mut DeviceStream, own: DeviceTile<u64, N>, from: DeviceTile<u64, N>, mut parts: Parts<f64>| {
        let (range, width) = (own.range(0), shape[1..].iter().product());
        let words = [shape[0], width, parts.leaf_rows(), range.start, range.end, from.range(0).start, around];
        let words = s.upload(&words.map(|word| word as u64))?;
        let lens = [from.len(), parts.len()].map(|len| len as u32);
        Ok(s.launch(&FOLD, Launch::for_len(parts.len()), (&from, &mut parts, &words, lens[0], lens[1], words.len() as u32))?)
    };
    if halo {
        return s.fold_kernel("device near", (from, from.halo(rows, rows)), Sum, launch);
    }
    s.fold_kernel("device sum", (from, from), Sum, launch)
}
