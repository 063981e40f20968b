//! The solver as a graph. Every rank builds it, and runs it on its own part of the grid.

use std::sync::Arc;

use anabranch::comm::World;
use anabranch::graph::{Peer, Shape, above};
use anabranch::scope::Max;
use anabranch::{Executor, Graph, Inputs, Result, Value, take};

use super::grid::{Field, Part, Solution, TOLERANCE, largest, minus, plus, ratio, total, turned};

/// Solves A x = b.
pub(crate) async fn solve(exec: &Executor, world: &World, part: Part) -> Result<Solution> {
    let plan = build(part).compile_for(world)?;
    let mut outputs = exec.run(&plan, Inputs::new()).await?;
    let (residuals, largest) = (outputs.take("residuals")?, outputs.take("largest")?);
    Ok(Solution { residuals: Arc::unwrap_or_clone(residuals), largest: *largest })
}

/// Returns the graph without its closures, for plans and pictures.
pub(crate) fn shape(part: Part) -> Shape {
    build(part).shape().clone()
}

fn build(part: Part) -> Graph {
    let mut g = Graph::new();
    g.set_name("conjugate gradients");
    let x = g.task("x = 0", (), move || part.zeros());
    let r = g.task("r = b", (), move || part.load());
    let p = g.task("p = r", (), move || part.load());
    let first = dot(&mut g, part, "r · r", &r, &r);
    let residuals = g.task("residuals", &first, |rr: &f64| vec![rr.sqrt()]);
    let (x, _, _, _, residuals) = g.repeat(
        "iterate",
        (take(&x), take(&r), take(&p), &first, take(&residuals)),
        // r · r is the same on all ranks, so all of them leave the loop after the same iteration.
        |c, (_, _, _, rr, _)| {
            c.task("is above", (&rr, &first), |rr: &f64, first: &f64| above(rr.sqrt(), TOLERANCE * first.sqrt()))
        },
        |b, (x, r, p, rr, residuals)| {
            let q = multiply(b, part, &p);
            let pq = dot(b, part, "p · Ap", &p, &q);
            let alpha = b.task("α", (&rr, &pq), ratio);
            let x = b.task("x + αp", (take(&x), &alpha, &p), plus);
            let r = b.task("r - αAp", (take(&r), &alpha, &q), minus);
            let next = dot(b, part, "r · r", &r, &r);
            let beta = b.task("β", (&next, &rr), ratio);
            let p = b.task("r + βp", (take(&p), &beta, &r), turned);
            let residuals = b.task("note", (take(&residuals), &next), |mut residuals: Vec<f64>, rr: &f64| {
                residuals.push(rr.sqrt());
                residuals
            });
            (x, r, p, next, residuals)
        },
    );
    let largest_here = g.task("largest here", &x, largest);
    // The largest of numbers is the same in any order.
    let largest = g.all_reduce("largest", &largest_here, Max);
    g.output("residuals", &residuals);
    g.output("largest", &largest);
    g
}

/// A p. Each rank gives its outer rows to its neighbours; the first and the last rank have one neighbour.
fn multiply(g: &mut Graph, part: Part, p: &Value<Field>) -> Value<Field> {
    let first = g.task("first row", p, move |p: &Field| part.first_row(p));
    let last = g.task("last row", p, move |p: &Field| part.last_row(p));
    g.send_to("send up", take(&first), Peer::previous());
    g.send_to("send down", take(&last), Peer::next());
    let above = g.recv_from::<Field>("row above", Peer::previous());
    let below = g.recv_from::<Field>("row below", Peer::next());
    g.task("Ap", (p, &above, &below), move |p: &Field, above: &Option<Field>, below: &Option<Field>| {
        part.stencil(p, above.as_deref().unwrap_or_default(), below.as_deref().unwrap_or_default())
    })
}

/// a · b, the same bits on all ranks.
fn dot(g: &mut Graph, part: Part, name: &'static str, a: &Value<Field>, b: &Value<Field>) -> Value<f64> {
    let sums = g.task(format!("{name} by block"), (a, b), move |a: &Field, b: &Field| part.sums(a, b));
    let all = g.all_gather(format!("{name} of all blocks"), take(&sums));
    g.task(name, &all, total)
}
