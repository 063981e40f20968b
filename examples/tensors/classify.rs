//! `ndarray` and candle in one graph: a scope (an array program, see the guide `arrays`) standardises the
//! rows of a table tile by tile, as views of `ndarray`; a node runs a layer of candle on the result.
//!
//! ```sh
//! cargo run -p anabranch-tensors --example classify
//! ```

use anabranch::graph::take;
use anabranch::scope::{Array, Streaming, TileMut};
use anabranch::{BoxError, Executor, Graph, inputs};
use candle_core::{Device, Tensor};
use futures::executor::block_on;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};

const ROWS: usize = 100_000;
const FEATURES: usize = 16;
const CLASSES: usize = 4;

fn main() -> Result<(), BoxError> {
    let mut g = Graph::new();
    let table = g.input::<Array<f32, 2>>("table");
    let standard = g.scope("standardise", Streaming::strict(), |s| {
        let rows = s.store("rows", [ROWS, FEATURES]);
        s.write("standardise", &table, &rows, |table: &Array<f32, 2>, mut tile: TileMut<f32, 2>| {
            let range = tile.range(0);
            let mut rows = ArrayViewMut2::from(&mut tile);
            rows.assign(&ArrayView2::from(table).slice(s![range, ..]));
            let mean = rows.mean_axis(Axis(1)).expect("there are features").insert_axis(Axis(1));
            // A row may be constant.
            let deviation = rows.std_axis(Axis(1), 0.0).mapv(|deviation| deviation.max(1e-6)).insert_axis(Axis(1));
            rows -= &mean;
            rows /= &deviation;
        });
        s.keep(&rows)
    });
    let weights = Tensor::arange(0_u32, (FEATURES * CLASSES) as u32, &Device::Cpu)?;
    let weights = weights.to_dtype(candle_core::DType::F32)?.sin()?.reshape((FEATURES, CLASSES))?;
    // A tensor owns its elements: it gets the vector of the array, which this node takes. So nothing is
    // copied.
    let scores = g.try_task("layer", take(&standard), move |rows: Array<f32, 2>| {
        let rows = Tensor::from_vec(rows.into_vec(), (ROWS, FEATURES), &Device::Cpu)?;
        Ok(rows.matmul(&weights)?.relu()?)
    });
    // A tensor is a value like any other.
    let classes = g.try_task("classes", &scores, |scores: &Tensor| Ok(scores.argmax(1)?.to_vec1::<u32>()?));
    g.output("classes", &classes);

    let plan = g.compile()?;
    println!("{plan}");
    let table = ndarray::Array2::from_shape_fn((ROWS, FEATURES), |(row, feature)| ((row * (feature + 3)) % 101) as f32);
    let exec = Executor::host()?;
    let run = exec.run(&plan, inputs! { "table" => Array::from(table) });
    let classes = block_on(run)?.take::<Vec<u32>>("classes")?;
    let counts = (0..CLASSES as u32).map(|class| classes.iter().filter(|&&of| of == class).count());
    println!("rows by class: {:?}", counts.collect::<Vec<_>>());
    Ok(())
}
