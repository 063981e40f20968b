//! The solver as a flow: every rank runs this code, and the loop is Rust's own.

use anabranch::comm::World;
use anabranch::graph::Peer;
use anabranch::scope::Max;
use anabranch::{Executor, Flow, Result, Var, take};

use super::grid::{Field, Part, Solution, TOLERANCE, largest, minus, plus, ratio, total, turned};

/// Solves A x = b.
pub(crate) async fn solve(exec: &Executor, world: &World, part: Part) -> Result<Solution> {
    exec.flow(async |f: &Flow| iterate(f, world, part).await).await
}

async fn iterate(f: &Flow, world: &World, part: Part) -> Result<Solution> {
    let mut x = f.value("x", part.zeros());
    let (mut r, mut p) = (f.value("r", part.load()), f.value("p", part.load()));
    let mut rr = dot(f, world, part, "r · r", &r, &r);
    let mut residuals = vec![f.get(&rr).await?.sqrt()];
    // r · r is the same on all ranks, so all of them leave the loop after the same iteration.
    while residuals[residuals.len() - 1] > TOLERANCE * residuals[0] {
        let q = multiply(f, world, part, &p);
        let pq = dot(f, world, part, "p · Ap", &p, &q);
        let alpha = f.task("α", (&rr, &pq), ratio);
        x = f.task("x + αp", (take(&x), &alpha, &p), plus);
        r = f.task("r - αAp", (take(&r), &alpha, &q), minus);
        let next = dot(f, world, part, "r · r", &r, &r);
        let beta = f.task("β", (&next, &rr), ratio);
        p = f.task("r + βp", (take(&p), &beta, &r), turned);
        rr = next;
        residuals.push(f.get(&rr).await?.sqrt());
    }
    let largest_here = f.task("largest here", &x, largest);
    // The largest of numbers is the same in any order.
    let largest = f.all_reduce(world, "largest", &largest_here, Max);
    Ok(Solution { residuals, largest: *f.get(&largest).await? })
}

/// A p. Each rank gives its outer rows to its neighbours; the first and the last rank have one neighbour.
fn multiply(f: &Flow, world: &World, part: Part, p: &Var<Field>) -> Var<Field> {
    let [up, down] = [Peer::previous(), Peer::next()].map(|peer| peer.of(world.rank(), world.size()));
    let first = f.task("first row", p, move |p: &Field| part.first_row(p));
    let last = f.task("last row", p, move |p: &Field| part.last_row(p));
    for (name, row, to) in [("send up", &first, up), ("send down", &last, down)] {
        // A send fails only if the world is broken. Then the next sum fails too.
        let _ = to.map(|rank| f.send_to(world, name, row, rank));
    }
    let frame = f.value("frame", Field::new());
    let receive = |name, from: Option<u32>| from.map_or(frame.clone(), |rank| f.recv_from(world, name, rank));
    let (above, below) = (receive("row above", up), receive("row below", down));
    f.task("Ap", (p, &above, &below), move |p: &Field, above: &Field, below: &Field| part.stencil(p, above, below))
}

/// a · b, the same bits on all ranks.
fn dot(f: &Flow, world: &World, part: Part, name: &'static str, a: &Var<Field>, b: &Var<Field>) -> Var<f64> {
    let sums = f.task(format!("{name} by block"), (a, b), move |a: &Field, b: &Field| part.sums(a, b));
    let all = f.all_gather(world, format!("{name} of all blocks"), &sums);
    f.task(name, &all, total)
}
