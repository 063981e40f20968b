//! The method: a graph for one iteration, and a flow that calls it until the residual is small.

use std::sync::Arc;

use anabranch::{DeviceStream, Flow, Function, Graph, HostBuffer, Result, Value, take};

use super::vectors::{Matrix, Rows, Vector, add, dot, turn};

/// What an iteration is given: the matrix A, the solution x, the residual r, the direction p, and r · r.
type Before = (Value<Matrix>, Value<Vector>, Value<Vector>, Value<Vector>, Value<Vector>);
/// What it makes of x, r, p and r · r; and |r|, for the host.
type After = (Value<Vector>, Value<Vector>, Value<Vector>, Value<Vector>, Value<f64>);

/// The graphs, compiled once.
pub(crate) struct Solver {
    upload: Function<Value<Rows>, Value<Matrix>>,
    begin: Function<Value<Vec<f64>>, After>,
    step: Function<Before, After>,
    download: Function<Value<Vector>, Value<HostBuffer<f64>>>,
}

/// What came of it.
pub(crate) struct Solution {
    pub(crate) x: Arc<HostBuffer<f64>>,
    /// |r| before the first iteration and after each.
    pub(crate) residuals: Vec<f64>,
    /// Whether the last is small enough.
    pub(crate) is_converged: bool,
}

impl Solver {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            upload: Function::new("upload", upload)?,
            begin: Function::new("begin", begin)?,
            step: Function::new("step", step)?,
            download: Function::new("download", download)?,
        })
    }

    /// Solves `A x = b` for a symmetric, positive definite A, until |r| is at most `tolerance` times what it
    /// was.
    pub(crate) async fn solve(&self, f: &Flow, a: Rows, b: Vec<f64>, tolerance: f64, iterations_max: usize) -> Result<Solution> {
        let a = f.call(&self.upload, &f.value("A", a));
        let (mut x, mut r, mut p, mut rr, mut residual) = f.call(&self.begin, &f.value("b", b));
        let mut residuals = Vec::new();
        loop {
            // The only wait of an iteration, and the only number that visits the host.
            let left = *f.get(&residual).await?;
            residuals.push(left);
            let is_converged = left <= tolerance * residuals[0];
            if is_converged || residuals.len() > iterations_max {
                let x = f.get(&f.call(&self.download, &x)).await?;
                return Ok(Solution { x, residuals, is_converged });
            }
            // The graph takes the vectors and gives them back: no iteration copies one.
            (x, r, p, rr, residual) = f.call(&self.step, (&a, take(&x), take(&r), take(&p), &rr));
        }
    }
}

fn upload(g: &mut Graph, a: Value<Rows>) -> Value<Matrix> {
    g.try_kernel("upload A", &a, |s: &mut DeviceStream, a: &Rows| Ok(Matrix::upload(s, a)?))
}

fn download(g: &mut Graph, x: Value<Vector>) -> Value<HostBuffer<f64>> {
    g.try_kernel("download x", &x, |s: &mut DeviceStream, x: &Vector| Ok(s.download(x)?))
}

/// x = 0, so r = b, and p = r.
fn begin(g: &mut Graph, b: Value<Vec<f64>>) -> After {
    let r = g.try_kernel("r = b", &b, |s: &mut DeviceStream, b: &Vec<f64>| Ok(s.upload(b)?));
    let x = g.try_kernel("x = 0", &r, |s: &mut DeviceStream, r: &Vector| {
        let mut x = s.alloc(r.len())?;
        s.fill(&mut x, 0.0)?;
        Ok(x)
    });
    let p = g.try_kernel("p = r", &r, |s: &mut DeviceStream, r: &Vector| {
        let mut p = s.alloc(r.len())?;
        s.copy(r, &mut p)?;
        Ok(p)
    });
    let rr = g.try_kernel("r · r", &r, |s: &mut DeviceStream, r: &Vector| Ok(dot(s, r, r)?));
    let residual = norm(g, &rr);
    (x, r, p, rr, residual)
}

/// α = r·r / p·Ap,  x += α p,  r -= α Ap,  β = (the new r·r) / r·r,  p = r + β p.
fn step(g: &mut Graph, (a, x, r, p, rr): Before) -> After {
    let q = g.try_kernel("Ap", (&a, &p), |s: &mut DeviceStream, a: &Matrix, p: &Vector| Ok(a.multiply(s, p)?));
    let pq = g.try_kernel("p · Ap", (&p, &q), |s: &mut DeviceStream, p: &Vector, q: &Vector| Ok(dot(s, p, q)?));
    let along = |sign| {
        move |s: &mut DeviceStream, mut y: Vector, x: &Vector, rr: &Vector, pq: &Vector| {
            add(s, &mut y, sign, [rr, pq], x)?;
            Ok(y)
        }
    };
    let x = g.try_kernel("x + αp", (take(&x), &p, &rr, &pq), along(1.0));
    let r = g.try_kernel("r - αAp", (take(&r), &q, &rr, &pq), along(-1.0));
    let next = g.try_kernel("r · r", &r, |s: &mut DeviceStream, r: &Vector| Ok(dot(s, r, r)?));
    let residual = norm(g, &next);
    let turned = |s: &mut DeviceStream, mut p: Vector, r: &Vector, next: &Vector, rr: &Vector| {
        turn(s, &mut p, [next, rr], r)?;
        Ok(p)
    };
    let p = g.try_kernel("r + βp", (take(&p), &r, &next, &rr), turned);
    (x, r, p, next, residual)
}

/// |r|, on the host.
fn norm(g: &mut Graph, rr: &Value<Vector>) -> Value<f64> {
    let rr = g.try_kernel("download r · r", rr, |s: &mut DeviceStream, rr: &Vector| Ok(s.download(rr)?));
    g.task("|r|", &rr, |rr: &HostBuffer<f64>| rr[0].sqrt())
}
