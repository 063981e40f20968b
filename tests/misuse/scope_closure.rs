//! Closures of operations of a scope that do not fit what is read and written.

use anabranch::Graph;
use anabranch::scope::{Streaming, Sum, Tile, TileMut, TilePlace};

fn main() {
    let mut g = Graph::new();
    g.scope("s", Streaming::strict(), |s| {
        let (a, b) = (s.store::<f32, 2>("a", [8, 8]), s.store::<f32, 2>("b", [8, 8]));
        s.write("other elements", &a, &b, |a: Tile<f64, 2>, mut b: TileMut<f32, 2>| b.fill(a.as_slice()[0] as f32));
        s.write("other axes", &a, &b, |a: Tile<f32, 1>, mut b: TileMut<f32, 2>| b.fill(a.as_slice()[0]));
        s.write("no target", &a, &b, |a: Tile<f32, 2>| assert!(!a.as_slice().is_empty()));
        s.write("a target that is only read", &a, &b, |a: Tile<f32, 2>, b: Tile<f32, 2>| assert_eq!(a[[0, 0]], b[[0, 0]]));
        s.write("another result", (), &b, |b: TileMut<f32, 2>| b.as_slice()[0]);
        s.try_write("no result", (), &b, |mut b: TileMut<f32, 2>| b.fill(1.0));
        s.fold("other parts", &a, Sum, |a: Tile<f32, 2>| a.as_slice().len().to_string());
        s.value("by value", &s.value("one", (), || 1_u64), |one: u64| one);
        s.load("not async", &a, |_: TilePlace<2>, buffer: Vec<f32>| Ok(buffer));
        s.save("other axes", &a, |_: TilePlace<1>, tile: Vec<f32>| async { Ok(tile) });
    });
}
