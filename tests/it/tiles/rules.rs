//! The rules: the operations that stream, their distances, and their memory.

use anabranch::tiles::{OpKind, Operation, Outline, Part, Reason, Rule, Streamed};

fn tiles() -> Part {
    Part::tiles([8])
}

/// A fill of `a`, and a store `b` of the same size.
fn filled(outline: &mut Outline) -> [anabranch::tiles::StoreId; 2] {
    let stores = ["a", "b"].map(|name| outline.store(name, [64], 8));
    outline.op(Operation::new("fill", [8]).write(stores[0], tiles()));
    stores
}

fn exact(outline: &Outline) -> Streamed {
    outline.stream(Rule::Exact).unwrap()
}

fn reasons(outline: &Outline) -> Vec<String> {
    outline.reasons(Rule::Exact).unwrap().iter().map(ToString::to_string).collect()
}

/// Returns the tiles of each store in memory.
fn windows(streamed: &Streamed) -> Vec<Option<u64>> {
    streamed.groups()[0].windows().iter().map(|window| window.tiles).collect()
}

#[test]
fn stencils_run_behind_each_other_and_keep_three_tiles() {
    // Seen to fail with skews that do not add up, and with windows without the reach back.
    let mut outline = Outline::new();
    let stores: Vec<_> = (0..5).map(|number| outline.store(format!("s{number}"), [800], 8)).collect();
    outline.op(Operation::new("fill", [100]).write(stores[0], tiles()));
    for pair in stores.windows(2) {
        outline.op(Operation::new("step", [100]).read(pair[0], tiles().halo([1], [1])).write(pair[1], tiles()));
    }
    let streamed = exact(&outline);
    assert!(streamed.is_one());
    let [group] = streamed.groups() else { panic!() };
    assert_eq!((group.skews(), group.steps()), (&[0, 1, 2, 3, 4][..], 104));
    assert_eq!(windows(&streamed), [Some(3), Some(3), Some(3), Some(3), Some(1)]);
    // Four windows of three tiles, and a tile for the last store.
    assert_eq!((streamed.bytes(1), streamed.bytes(2), streamed.unstreamed_bytes()), (13 * 64, 18 * 64, 2 * 6400));
}

#[test]
fn what_reads_back_keeps_the_tiles_that_it_needs() {
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    outline.op(Operation::new("shift", [8]).read(a, tiles().offset([-16])).write(b, tiles()));
    let streamed = exact(&outline);
    assert_eq!((streamed.groups()[0].skews(), windows(&streamed)), (&[0, 0][..], vec![Some(3), Some(1)]));
}

#[test]
fn a_transposed_read_streams_if_it_needs_no_more_memory() {
    // Seen to fail with windows that may be larger than the store.
    for colors in 2..6 {
        let mut outline = Outline::new();
        let size = [4 * colors, 4 * colors];
        let [m, n] = ["m", "n"].map(|name| outline.store(name, size, 8));
        let launch = [colors, colors];
        outline.op(Operation::new("fill", launch).write(m, Part::tiles([4, 4])));
        outline.op(Operation::new("copy", launch).read(m, Part::tiles([4, 4]).transposed()).write(n, Part::tiles([4, 4])));
        let streamed = exact(&outline);
        let lag = (colors - 1).pow(2);
        let whole = size.iter().product::<u64>() * 8;
        let window = (2 * lag + 1) * 128;
        assert_eq!(streamed.groups()[0].skews(), [0, lag], "{colors}");
        assert_eq!((streamed.is_one(), streamed.bytes(1)), (true, window.min(whole) + 128), "{colors}");
        assert!(streamed.bytes(3) <= whole + 3 * 128, "{colors}");
    }
}

#[test]
fn what_is_done_once_comes_before_the_batches_or_behind_them() {
    // Seen to fail without the check of batches that need it.
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    let [sum, mean] = ["sum", "mean"].map(|name| outline.store(name, [1], 8));
    outline.op(Operation::once("zero").write(sum, Part::whole()));
    outline.op(Operation::new("add", [8]).read(a, tiles()).reduce(sum, Part::whole(), "+"));
    outline.op(Operation::once("divide").read(sum, Part::whole()).write(mean, Part::whole()));
    let streamed = exact(&outline);
    assert!(streamed.is_one());
    assert_eq!(streamed.groups()[0].skews(), [0, 0, 0, 7]);
    outline.op(Operation::new("centre", [8]).read(a, tiles()).read(mean, Part::whole()).write(b, tiles()));
    let streamed = exact(&outline);
    assert_eq!(streamed.groups().len(), 2);
    assert!(matches!(streamed.groups()[0].cut(), [Reason::AfterOnce { .. }]));
    // `a` goes from group to group, so it is whole.
    assert_eq!(streamed.bytes(1), 64 * 8 + 64 + 8);
}

#[test]
fn all_reasons_of_an_operation_are_told() {
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    let c = outline.store("c", [64], 8);
    outline.op(Operation::new("copy", [8]).read(a, tiles()).write(b, tiles()));
    outline.op(Operation::new("all", [8]).read(a, Part::whole()).read(b, Part::whole()).write(c, tiles()));
    assert_eq!(
        reasons(&outline),
        [
            "store 'a': 'fill' writes tiles of 8, and 'all' reads the whole store; the first batch of 'all' that shares elements needs 'fill' up to its last batch",
            "store 'b': 'copy' writes tiles of 8, and 'all' reads the whole store; the first batch of 'all' that shares elements needs 'copy' up to its last batch",
        ]
    );
}

#[test]
fn batches_of_one_operation_must_not_share_what_one_writes() {
    // Seen to fail without the check.
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    outline.op(Operation::new("blur", [8]).read(a, tiles().halo([1], [1])).write(a, tiles()));
    outline.op(Operation::new("same", [8]).write(b, Part::whole()));
    assert_eq!(
        reasons(&outline),
        [
            "store 'a': 'blur' reads tiles of 8, halo 1 before and 1 behind, and 'blur' writes tiles of 8; so two batches of 'blur' use the same elements",
            "store 'b': 'same' writes the whole store, and 'same' writes the whole store; so two batches of 'same' use the same elements",
        ]
    );
}

#[test]
fn all_pairs_of_an_operation_whose_batches_share_elements_are_told_once() {
    // Seen to fail with the first pair alone.
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    let halo = || tiles().halo([1], [1]);
    outline.op(Operation::new("mix", [8]).read(a, halo()).read(a, halo()).write(a, tiles()).write(b, Part::whole()));
    assert_eq!(
        reasons(&outline),
        [
            "store 'a': 'mix' reads tiles of 8, halo 1 before and 1 behind, and 'mix' writes tiles of 8; so two batches of 'mix' use the same elements",
            "store 'b': 'mix' writes the whole store, and 'mix' writes the whole store; so two batches of 'mix' use the same elements",
        ]
    );
}

#[test]
fn some_kinds_of_operations_do_not_stream() {
    for kind in [OpKind::HostRead, OpKind::Image, OpKind::Concurrent] {
        let mut outline = Outline::new();
        let [a, _] = filled(&mut outline);
        outline.op(Operation::new("other", [8]).kind(kind).read(a, tiles()));
        assert!(matches!(outline.reasons(Rule::Exact).unwrap()[..], [Reason::Kind { .. }]), "{kind:?}");
    }
}

#[test]
fn memory_is_bounded_from_the_least_that_would_do() {
    // Seen to fail with the bytes of the groups as they were cut.
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    outline.op(Operation::new("step", [8]).read(a, tiles().halo([1], [1])).write(b, tiles()));
    let least = 4 * 64;
    assert_eq!(outline.stream_within(Rule::Exact, least).unwrap().bytes(1), least);
    let error = outline.stream_within(Rule::Exact, least - 1).unwrap_err();
    assert_eq!(error.to_string(), "the groups need 256 bytes with one batch in flight, and may use 255: allow 256");
}

#[test]
fn a_rule_does_not_take_longer_with_more_batches() {
    // Hangs if each batch is tried.
    let batches = [1 << 20, 1 << 19];
    let mut outline = Outline::new();
    let [a, b] = ["a", "b"].map(|name| outline.store(name, batches, 1));
    let tiles = || Part::tiles([1, 1]);
    outline.op(Operation::new("fill", batches).write(a, tiles()));
    outline.op(Operation::new("step", batches).read(a, tiles().halo([1, 1], [1, 1])).write(b, tiles()));
    let streamed = exact(&outline);
    assert_eq!(streamed.groups()[0].skews(), [0, (1 << 19) + 1]);
}

#[test]
fn a_store_that_is_read_where_it_is_first_written_is_whole() {
    // Seen to fail with windows that depend on the first access of the operation alone.
    let mut outline = Outline::new();
    let a = outline.store("a", [64], 8);
    outline.op(Operation::new("grow", [8]).write(a, tiles()).read(a, tiles()));
    let streamed = exact(&outline);
    assert_eq!((windows(&streamed), streamed.bytes(1)), (vec![None], 512));
}

#[test]
fn the_largest_sizes_have_sums_that_end() {
    // Seen to fail with sums that overflow.
    let mut outline = Outline::new();
    let size = [1 << 20, 1 << 20];
    for number in 0..40 {
        let store = outline.store(format!("s{number}"), size, 1 << 20);
        outline.op(Operation::new("fill", size).write(store, Part::tiles([1, 1])));
        outline.keep(store);
    }
    let streamed = exact(&outline);
    assert_eq!((streamed.unstreamed_bytes(), streamed.bytes(u64::MAX)), (u64::MAX, u64::MAX));
}

#[test]
fn legate_compares_how_many_tiles_there_are() {
    let mut outline = Outline::new();
    let [a, _] = filled(&mut outline);
    outline.op(Operation::new("first", [1]).read(a, tiles()));
    assert!(matches!(outline.reasons(Rule::Legate).unwrap()[..], [Reason::Partitions { .. }]));
}

#[test]
fn a_store_with_writers_of_different_launches_is_whole() {
    // Seen to fail with parts that are compared without their launches.
    let mut outline = Outline::new();
    let a = outline.store("a", [8, 8], 8);
    let tile = || Part::tiles([1, 1]);
    outline.op(Operation::new("column", [8, 1]).write(a, tile()));
    outline.op(Operation::new("row", [1, 8]).write(a, tile().offset([0, 0])));
    outline.op(Operation::new("both", [1, 8]).read(a, tile()));
    assert_eq!(windows(&exact(&outline)), [None]);
}

#[test]
fn an_operation_that_never_streams_has_whole_stores_and_is_told_once() {
    // Seen to fail with a window of one tile, as of an operation that streams.
    let mut outline = Outline::new();
    let [a, b] = filled(&mut outline);
    outline.op(Operation::new("all", [8]).kind(OpKind::Concurrent).read(a, tiles()).write(b, tiles()));
    let streamed = exact(&outline);
    assert_eq!(streamed.groups()[1].windows().iter().map(|window| window.tiles).collect::<Vec<_>>(), [None, None]);
    let text = streamed.to_string();
    assert!(text.contains("all   does not stream: all batches at once"), "{text}");
    assert_eq!(text.matches("needs all its batches at once").count(), 1, "{text}");
}

#[test]
fn a_store_is_whole_if_elements_are_read_that_nothing_wrote() {
    // Seen to fail with windows of the elements that the first writer has: one tile, and 8 bytes less.
    let half = |read: Part, other: Option<Part>| {
        let mut outline = Outline::new();
        let [a, b] = ["a", "b"].map(|name| outline.store(name, [128], 8));
        outline.op(Operation::new("fill", [8]).write(a, tiles()));
        if let Some(other) = other {
            outline.op(Operation::new("more", [8]).write(a, other));
        }
        outline.op(Operation::new("copy", [8]).read(a, read).write(b, tiles()));
        (windows(&exact(&outline))[0], exact(&outline).unstreamed_bytes())
    };
    assert_eq!(half(tiles(), None), (Some(1), 2048));
    assert_eq!(half(tiles().offset([-8]), None), (Some(2), 2048));
    assert_eq!(half(tiles().offset([64]), None), (None, 2048));
    assert_eq!(half(tiles().halo([0], [1]), None), (None, 2048));
    // Two operations write all elements; the store begins with the first.
    assert_eq!(half(tiles().offset([64]), Some(tiles().offset([64]))), (None, 2048));
}

#[test]
fn a_store_from_outside_is_there_before_the_first_operation() {
    // Seen to fail with stores that begin with their first writer.
    let bytes = |offset: i64| {
        let mut outline = Outline::new();
        let [a, b] = ["a", "b"].map(|name| outline.store(name, [128], 8));
        outline.op(Operation::new("fill", [16]).write(b, tiles()));
        outline.op(Operation::new("half", [8]).write(a, tiles()));
        outline.op(Operation::new("sum", [8]).read(a, tiles().offset([offset])));
        let off = outline.stream(Rule::Off).unwrap();
        (off.groups()[0].bytes(1), off.unstreamed_bytes())
    };
    // No operation reads `b`, so it ends with the operation where it begins.
    assert_eq!((bytes(0), bytes(64)), ((64, 1024), (64 + 1024, 2048)));
}
