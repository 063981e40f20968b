//! Programs that stream and programs that do not: those that hang the original, and reasons as values.

use std::error::Error as _;

use anabranch::scope::{Array, NotStreaming, Streaming, Sum, Tile, TileMut};
use anabranch::tiles::Reason;
use anabranch::{Executor, Graph, Result, inputs};

fn copy(from: Tile<u32, 2>, mut to: TileMut<u32, 2>) {
    let place = to.place();
    for i in place.range(0) {
        for j in place.range(1) {
            to[[i, j]] = from[[j, i]];
        }
    }
}

/// In the original this is accepted, and hangs.
#[test]
fn a_transposed_read_streams() -> Result<()> {
    let mut g = Graph::new();
    let result = g.scope("transpose", Streaming::strict().in_flight(3), |s| {
        let (a, b) = (s.store("a", [12, 12]), s.store("b", [12, 12]));
        s.tiles(&a, [3, 3]);
        s.tiles(&b, [3, 3]);
        s.write("fill", (), &a, |mut a: TileMut<u32, 2>| {
            let place = a.place();
            place.range(0).for_each(|i| place.range(1).for_each(|j| a[[i, j]] = (100 * i + j) as u32));
        });
        s.write("turn", a.transposed(), &b, copy);
        s.keep(&b)
    });
    g.output("b", &result);
    let plan = g.compile()?;
    let streamed = plan.scope("transpose").unwrap().streamed();
    assert!(streamed.is_one());
    // Batch 1 of `turn` has tile (0, 1), and needs tile (1, 0), which is batch 4 of `fill`, and so on.
    assert_eq!(streamed.groups()[0].skews(), [0, 9]);
    let mut outputs = futures::executor::block_on(Executor::host()?.run(&plan, inputs! {}))?;
    let b = outputs.take::<Array<u32, 2>>("b")?;
    assert_eq!((b[[2, 7]], b[[11, 0]]), (702, 11));
    Ok(())
}

/// In the original this is accepted, and hangs.
#[test]
fn a_shifted_read_streams() -> Result<()> {
    let mut g = Graph::new();
    let result = g.scope("shift", Streaming::strict().over_decompose_factor(4).workers(2), |s| {
        let (a, b) = (s.store("a", [64]), s.store("b", [64]));
        s.write("fill", (), &a, |mut a: TileMut<u32, 1>| {
            let range = a.range(0);
            range.for_each(|i| a[[i]] = i as u32);
        });
        s.write("next", a.shifted([1]), &b, |a: Tile<u32, 1>, mut b: TileMut<u32, 1>| {
            let range = b.range(0);
            range.for_each(|i| b[[i]] = a.get([i + 1]).copied().unwrap_or(7));
        });
        s.keep(&b)
    });
    g.output("b", &result);
    let mut outputs = futures::executor::block_on(Executor::host()?.run(&g.compile()?, inputs! {}))?;
    let expected: Vec<u32> = (1..64).chain([7]).collect();
    assert_eq!(outputs.take::<Array<u32, 1>>("b")?.as_slice(), expected);
    Ok(())
}

/// A store is read, and then overwritten, while earlier batches are still to be read.
#[test]
fn an_overwritten_store_is_read_before() -> Result<()> {
    let mut g = Graph::new();
    let result = g.scope("again", Streaming::strict().over_decompose_factor(8).workers(1).in_flight(4), |s| {
        let (a, b) = (s.store("a", [64]), s.store("b", [64]));
        s.write("fill", (), &a, |mut a: TileMut<u32, 1>| a.fill(1));
        s.write("near", a.halo([2], [2]), &b, |a: Tile<u32, 1>, mut b: TileMut<u32, 1>| b.fill(a.as_slice().iter().sum()));
        s.write("fill", (), &a, |mut a: TileMut<u32, 1>| a.fill(100));
        (s.keep(&a), s.keep(&b))
    });
    g.output("a", &result.0);
    g.output("b", &result.1);
    let mut outputs = futures::executor::block_on(Executor::host()?.run(&g.compile()?, inputs! {}))?;
    assert_eq!(outputs.take::<Array<u32, 1>>("a")?.as_slice(), [100; 64]);
    let b = outputs.take::<Array<u32, 1>>("b")?;
    assert_eq!((b[[0]], b[[8]], b[[63]]), (10, 12, 10));
    Ok(())
}

fn mean(g: &mut Graph, streaming: Streaming) {
    let result = g.scope("mean", streaming.over_decompose_factor(8).workers(1), |s| {
        let (a, b) = (s.store("a", [1 << 16]), s.store("b", [1 << 16]));
        s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(3.0));
        let sum = s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>());
        s.write("less", (&a, &sum), &b, |a: Tile<f64, 1>, sum: &f64, mut b: TileMut<f64, 1>| {
            b.as_mut_slice().iter_mut().zip(a.as_slice()).for_each(|(b, a)| *b = a - sum / 65536.0);
        });
        s.keep(&b)
    });
    g.output("b", &result);
}

#[test]
fn strict_refuses_what_needs_a_whole_reduction_with_reasons_as_values() {
    let mut g = Graph::new();
    mean(&mut g, Streaming::strict());
    let error = g.compile().unwrap_err();
    assert!(error.is_invalid_graph());
    assert_eq!(error.to_string(), "scope 'mean' does not stream as a whole, for one reason: `Streaming::relaxed()` would cut it");
    let refused = error.source().and_then(|source| source.downcast_ref::<NotStreaming>()).unwrap();
    let [Reason::NeedsLast { clash, .. }] = refused.reasons() else { panic!("{:?}", refused.reasons()) };
    assert_eq!((&*clash.store, &*clash.earlier.op.name, &*clash.later.op.name), ("sum", "sum", "less"));
}

/// Several reasons have a line each.
#[test]
fn stores_with_different_numbers_of_tiles_do_not_stream_together() {
    let mut g = Graph::new();
    g.scope("s", Streaming::strict(), |s| {
        for (name, rows) in [("a", 8_usize), ("b", 12), ("c", 4)] {
            let store = s.store(name, [rows]);
            s.tiles(&store, [2]);
            s.write(name, (), &store, |mut tile: TileMut<u8, 1>| tile.fill(1));
        }
    });
    let told = format!("{:#}", g.compile().unwrap_err());
    let wanted = "scope 's' does not stream as a whole, for 2 reasons: `Streaming::relaxed()` would cut it: \
         'b' has 6 batches, and 'a' has 4: let both have as many;\n\
         'c' has 2 batches, and 'b' has 6: let both have as many";
    assert_eq!(told, wanted);
}

#[test]
fn relaxed_cuts_before_what_needs_a_whole_reduction() -> Result<()> {
    let mut g = Graph::new();
    mean(&mut g, Streaming::relaxed());
    let plan = g.compile()?;
    let scope = plan.scope("mean").unwrap();
    assert_eq!(scope.streamed().groups().len(), 2);
    assert!(scope.to_string().contains("cut        before 'less'"), "{scope}");
    let mut outputs = futures::executor::block_on(Executor::host()?.run(&plan, inputs! {}))?;
    assert_eq!(outputs.take::<Array<f64, 1>>("b")?.as_slice(), [0.0; 1 << 16]);
    Ok(())
}
