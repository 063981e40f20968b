//! The same programs as scopes.

use anabranch::scope::{Streaming, Sum, Tile, TileMut};
use anabranch::{Executor, Graph, inputs};
use futures::executor::block_on;

use super::hand::{inc, sum};
use super::{THREADS, Way};

/// The executor of all ways.
pub(crate) struct Ours(Executor);

impl Ours {
    pub(crate) fn new() -> Self {
        Self(Executor::builder().workers(THREADS).build().expect("there are threads"))
    }

    /// Returns a way of a graph with an output `result`.
    fn way(&self, name: &'static str, build: impl FnOnce(&mut Graph)) -> Way {
        let mut g = Graph::new();
        build(&mut g);
        let (exec, plan) = (self.0.clone(), g.compile().expect("it streams"));
        let run = move || {
            let mut outputs = block_on(exec.run(&plan, inputs! {})).expect("nothing fails");
            *outputs.take::<f64>("result").expect("it is a number")
        };
        Way { name, run: Box::new(run), before_bytes: 0 }
    }

    pub(crate) fn sums(&self, elements: usize, incs: usize) -> Vec<Way> {
        let strict = Streaming::strict().workers(THREADS);
        let ways = [
            ("scope, default tiles", strict),
            ("scope, factor 32", strict.over_decompose_factor(32)),
            ("scope, off", Streaming::off().workers(THREADS)),
        ];
        let scope = |g: &mut Graph, streaming| {
            let total = g.scope("sums", streaming, |s| {
                let mut a = s.store("a", [elements]);
                s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
                for _ in 0..incs {
                    a = s.update("inc", (), &a, |mut a: TileMut<f64, 1>| inc(a.as_mut_slice()));
                }
                s.fold("sum", &a, Sum, |a: Tile<f64, 1>| sum(a.as_slice()))
            });
            g.output("result", &total);
        };
        ways.into_iter().map(|(name, streaming)| self.way(name, |g| scope(g, streaming))).collect()
    }

    /// A chain of stencils on a line.
    pub(crate) fn lines(&self, elements: usize, steps: usize) -> Vec<Way> {
        let scope = |g: &mut Graph, streaming| {
            let result = g.scope("line", streaming, |s| {
                let mut u = s.store("u", [elements]);
                s.write("fill", (), &u, |mut u: TileMut<f64, 1>| u.fill(1.0));
                for _ in 0..steps {
                    let v = s.store("v", [elements]);
                    s.write("step", u.halo([1], [1]), &v, three_points);
                    u = v;
                }
                s.fold("sum", &u, Sum, |u: Tile<f64, 1>| sum(u.as_slice()))
            });
            g.output("result", &result);
        };
        self.both(scope)
    }

    /// A chain of stencils on a grid.
    pub(crate) fn grids(&self, side: usize, steps: usize) -> Vec<Way> {
        let scope = |g: &mut Graph, streaming| {
            let result = g.scope("grid", streaming, |s| {
                let mut u = s.store("u", [side, side]);
                s.write("fill", (), &u, |mut u: TileMut<f64, 2>| u.fill(1.0));
                for _ in 0..steps {
                    let v = s.store("v", [side, side]);
                    s.write("step", u.halo([1, 0], [1, 0]), &v, five_points);
                    u = v;
                }
                s.fold("sum", &u, Sum, |u: Tile<f64, 2>| sum(u.as_slice()))
            });
            g.output("result", &result);
        };
        self.both(scope)
    }

    fn both(&self, scope: impl Fn(&mut Graph, Streaming)) -> Vec<Way> {
        let ways = [("off", Streaming::off()), ("strict", Streaming::strict())];
        ways.into_iter().map(|(name, streaming)| self.way(name, |g| scope(g, streaming.workers(THREADS)))).collect()
    }
}

fn three_points(u: Tile<f64, 1>, mut v: TileMut<f64, 1>) {
    let before = v.range(0).start - u.range(0).start;
    let (u, v) = (u.as_slice(), v.as_mut_slice());
    let at = |i: usize| u[i.min(u.len() - 1)];
    let (last, count) = (v.len() - 1, u.len() - before - v.len());
    v[0] = 0.25 * at(before.saturating_sub(1)) + 0.5 * at(before) + 0.25 * at(before + 1);
    v[last] = 0.25 * at((before + last).saturating_sub(1)) + 0.5 * at(before + last) + 0.25 * at(before + last + count);
    for (v, near) in v[1..last].iter_mut().zip(u[before..].windows(3)) {
        *v = 0.25 * near[0] + 0.5 * near[1] + 0.25 * near[2];
    }
}

fn five_points(u: Tile<f64, 2>, mut v: TileMut<f64, 2>) {
    for i in v.range(0) {
        let (up, row, down) = (u.row(i.saturating_sub(1)), u.row(i), u.row(i + 1));
        let down = if down.is_empty() { row } else { down };
        let (v, last) = (v.row_mut(i), row.len() - 1);
        for j in [0, last] {
            v[j] = 0.2 * (row[j] + up[j] + down[j] + row[j.saturating_sub(1)] + row[(j + 1).min(last)]);
        }
        let inner = v[1..last].iter_mut().zip(row.windows(3)).zip(up[1..last].iter().zip(&down[1..last]));
        for ((v, near), (up, down)) in inner {
            *v = 0.2 * (near[0] + near[1] + near[2] + up + down);
        }
    }
}
