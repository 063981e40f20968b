//! Vectors and a sparse matrix in a device's memory, and what is done with them: kernels for a GPU, each with
//! a twin for hosts.

use std::sync::LazyLock;

use anabranch::device::{In, Kernel, Launch, Out};
use anabranch::{Buffer, DeviceStream, Result};
use sprs::CsMatI;

/// A vector, or a number that stays where the vectors are.
pub(crate) type Vector = Buffer<f64>;

/// A sparse matrix row by row, in the host's memory.
pub(crate) type Rows = CsMatI<f64, u32>;

/// A sparse square matrix in a device's memory.
pub(crate) struct Matrix {
    /// Where each row begins in the other two; one more says where the last ends.
    starts: Buffer<u32>,
    columns: Buffer<u32>,
    values: Vector,
}

/// What the compiler made of `kernels.cu`, so that none is needed here.
const CODE: &str = include_str!("kernels.ptx");

type Multiply = Kernel<(In<u32>, In<u32>, In<f64>, In<f64>, Out<f64>, u32)>;
type Dot = Kernel<(In<f64>, In<f64>, Out<f64>, u32)>;
type Add = Kernel<(Out<f64>, f64, In<f64>, In<f64>, In<f64>, u32)>;
type Turn = Kernel<(Out<f64>, In<f64>, In<f64>, In<f64>, u32)>;

static MULTIPLY: LazyLock<Multiply> = LazyLock::new(|| {
    // SAFETY: a thread writes an element of its own below `n`, the length of both vectors and of the matrix's
    // side. A `Matrix` is made of `Rows`, which are sound.
    unsafe { Multiply::ptx("multiply", CODE) }.twin(|_, (starts, columns, values, x, y, _)| {
        for (row, y) in y.iter_mut().enumerate() {
            let entries = starts[row] as usize..starts[row + 1] as usize;
            *y = entries.map(|at| values[at] * x[columns[at] as usize]).sum();
        }
    })
});

static DOT: LazyLock<Dot> = LazyLock::new(|| {
    // SAFETY: it reads below `n`, the length of both vectors, and is launched in one block of 256 threads, of
    // which one writes the only element.
    unsafe { Dot::ptx("dot", CODE) }.twin(|_, (x, y, product, _)| product[0] = x.iter().zip(y).map(|(x, y)| x * y).sum())
});

static ADD: LazyLock<Add> = LazyLock::new(|| {
    // SAFETY: a thread changes an element of its own below `n`, the length of both vectors; a number has one
    // element.
    unsafe { Add::ptx("add_scaled", CODE) }.twin(|_, (y, sign, a, b, x, _)| {
        let factor = sign * (a[0] / b[0]);
        y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
    })
});

static TURN: LazyLock<Turn> = LazyLock::new(|| {
    // SAFETY: as for `add`.
    unsafe { Turn::ptx("turn", CODE) }.twin(|_, (y, a, b, x, _)| {
        let factor = a[0] / b[0];
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + factor * *y);
    })
});

impl Matrix {
    /// Copies a matrix to the device.
    pub(crate) fn upload(s: &mut DeviceStream, rows: &Rows) -> Result<Self> {
        assert!(rows.is_csr() && rows.rows() == rows.cols(), "the matrix is square, row by row");
        let starts = s.upload(rows.indptr().raw_storage())?;
        Ok(Self { starts, columns: s.upload(rows.indices())?, values: s.upload(rows.data())? })
    }

    /// Returns `A x`.
    pub(crate) fn multiply(&self, s: &mut DeviceStream, x: &Vector) -> Result<Vector> {
        let n = x.len();
        assert_eq!(self.starts.len(), n + 1, "the vector is as long as the matrix is wide");
        let mut y = s.alloc(n)?;
        s.launch(&MULTIPLY, Launch::for_len(n), (&self.starts, &self.columns, &self.values, x, &mut y, n as u32))?;
        Ok(y)
    }
}

/// Returns `x · y`.
pub(crate) fn dot(s: &mut DeviceStream, x: &Vector, y: &Vector) -> Result<Vector> {
    assert_eq!(x.len(), y.len(), "the vectors are of one length");
    let mut product = s.alloc(1)?;
    s.launch(&DOT, Launch::for_len(1), (x, y, &mut product, x.len() as u32))?;
    Ok(product)
}

/// Changes `y` into `y + sign (a / b) x`.
pub(crate) fn add(s: &mut DeviceStream, y: &mut Vector, sign: f64, [a, b]: [&Vector; 2], x: &Vector) -> Result<()> {
    assert_eq!((y.len(), a.len(), b.len()), (x.len(), 1, 1), "two vectors of one length, and two numbers");
    s.launch(&ADD, Launch::for_len(x.len()), (y, sign, a, b, x, x.len() as u32))
}

/// Changes `y` into `x + (a / b) y`.
pub(crate) fn turn(s: &mut DeviceStream, y: &mut Vector, [a, b]: [&Vector; 2], x: &Vector) -> Result<()> {
    assert_eq!((y.len(), a.len(), b.len()), (x.len(), 1, 1), "two vectors of one length, and two numbers");
    s.launch(&TURN, Launch::for_len(x.len()), (y, a, b, x, x.len() as u32))
}
