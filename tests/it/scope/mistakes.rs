//! Mistakes in scopes: each is an error of `compile` that names the mistake and says what to do.

use anabranch::device::Element;
use anabranch::scope::{Array, DeviceTile, DeviceTileMut, Parts, Scope, Store, Streaming, Sum, Tile, TileMut, operator};
use anabranch::{DeviceStream, Executor, Graph, inputs};

/// Returns the error of a scope.
fn error(streaming: Streaming, build: impl FnOnce(&mut Scope)) -> String {
    let mut g = Graph::new();
    let done = g.scope("s", streaming, build);
    g.output("done", &done);
    let error = g.compile().unwrap_err();
    assert!(error.is_invalid_graph(), "{error}");
    error.to_string()
}

fn copy(from: Tile<u8, 1>, mut to: TileMut<u8, 1>) {
    to.as_mut_slice().copy_from_slice(from.as_slice());
}

#[test]
fn stores_are_written_before_they_are_read() {
    let told = error(Streaming::strict(), |s| {
        let (a, b) = (s.store("a", [8]), s.store("b", [8]));
        s.write("copy", &a, &b, copy);
    });
    assert_eq!(told, "scope 's': operation 'copy' reads store 'a', which nothing has written: write or load it first");
    let told = error(Streaming::strict(), |s| {
        let a = s.store::<u8, 1>("a", [8]);
        s.keep(&a);
    });
    assert_eq!(told, "scope 's': store 'a' is kept, and nothing has written it: write or load it first");
}

#[test]
fn no_operation_reads_what_it_writes() {
    for streaming in [Streaming::strict(), Streaming::relaxed(), Streaming::off()] {
        let told = error(streaming, |s| {
            let a = s.store("a", [8]);
            s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
            s.write("blur", a.halo([1], [1]), &a, copy);
        });
        assert_eq!(told, "scope 's': operation 'blur' reads store 'a' and writes it: update it, or write another store");
    }
}

#[test]
fn tiles_of_stores_go_together() {
    let told = error(Streaming::strict(), |s| {
        let (a, b) = (s.store("a", [8]), s.store("b", [9]));
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
        s.write("copy", &a, &b, copy);
    });
    let with = "whose shape [8] does not go with that of store 'b', [9]";
    let wanted = format!("operation 'copy' reads tiles of store 'a', {with}: read `a.whole()`, or let both have as many rows");
    assert_eq!(told, format!("scope 's': {wanted}"));
}

#[test]
fn tiles_cut_no_leaf_of_a_reduction() {
    for (tile, is_right) in [([3, 2], false), ([8, 1], false), ([2048, 2], true), ([9000, 2], true)] {
        let mut g = Graph::new();
        let sum = g.scope("s", Streaming::relaxed(), |s| {
            let a = s.store("a", [9000, 2]);
            s.tiles(&a, tile);
            s.write("fill", (), &a, |mut a: TileMut<u64, 2>| a.fill(1));
            s.fold("sum", &a, Sum, |a: Tile<u64, 2>| a.as_slice().iter().sum::<u64>())
        });
        g.output("sum", &sum);
        let told = g.compile().err().map(|error| error.to_string());
        let cut = "scope 's': operation 'sum' is a reduction, and the tiles of store 'a' cut its leaves, which have 2048 rows: let the tiles have whole rows, and 2048 or a multiple of them";
        assert_eq!(told.as_deref(), (!is_right).then_some(cut));
    }
}

#[test]
fn what_is_made_once_reads_whole_stores() {
    let told = error(Streaming::strict(), |s| {
        let a = s.store("a", [8]);
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
        s.value("first", &a, |a: Tile<u8, 1>| a[[0]]);
    });
    assert_eq!(told, "scope 's': operation 'first' is done once and reads tiles of store 'a': read `a.whole()`");
    let told = error(Streaming::strict(), |s| {
        let one = s.value("one", (), || 1_u8);
        s.fold("sum", &one, Sum, |one: &u8| *one);
    });
    assert_eq!(told, "scope 's': operation 'sum' is a reduction and reads no store tile by tile: read `&store` first");
}

#[test]
fn stores_of_another_scope_are_refused() {
    let mut kept = None;
    error(Streaming::strict(), |s| {
        kept = Some(s.store::<u8, 1>("a", [8]));
        s.keep(kept.as_ref().unwrap());
    });
    type Use<'u> = &'u dyn Fn(&mut Scope, &Store<u8, 1>);
    let uses: [(&str, Use<'_>); 4] = [
        ("operation 'fill' uses a store", &|s, a| s.write("fill", (), a, |mut a: TileMut<u8, 1>| a.fill(1))),
        ("operation 'in/inc' updates a store", &|s, a| {
            s.scope("in", Streaming::strict(), |s| _ = s.update("inc", (), a, |mut a: TileMut<u8, 1>| a.fill(1)));
        }),
        ("`tiles` gets a store", &|s, a| s.tiles(a, [4])),
        ("`keep` gets a store", &|s, a| _ = s.keep(a)),
    ];
    for (what, used) in uses {
        let told = error(Streaming::strict(), |s| used(s, kept.as_ref().unwrap()));
        assert_eq!(told, format!("scope 's': {what} of another scope: use those of the `Scope` that its closure gets"));
    }
}

#[test]
fn settings_are_in_range() {
    let fill = |s: &mut Scope| {
        let a = s.store("a", [8]);
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
    };
    let told = error(Streaming::strict().over_decompose_factor(0), fill);
    assert_eq!(told, "scope 's': `over_decompose_factor` must be from 1 to 65536, not 0");
    let told = error(Streaming::strict().in_flight(0), fill);
    assert_eq!(told, "scope 's': `in_flight` must be from 1 to 65536, not 0");
    let told = error(Streaming::strict().workers(0), fill);
    assert_eq!(told, "scope 's': `workers` must be from 1 to 65536, not 0");
    let told = error(Streaming::strict(), |s| {
        let a = s.store::<u8, 1>("a", [8]);
        s.tiles(&a, [0]);
    });
    assert_eq!(told, "scope 's': the tiles of store 'a' have no elements: [0]: give one or more along each axis");
}

#[test]
fn an_inner_scope_streams_as_the_outer_one() {
    let told = error(Streaming::strict(), |s| s.scope("inner", Streaming::off(), |_| ()));
    let wanted = "give it the same `Streaming`, or make it a scope of the graph";
    assert_eq!(told, format!("scope 's': the inner scope 'inner' streams in another way: {wanted}"));
    let mut g = Graph::new();
    let sum = g.scope("s", Streaming::strict(), |s| {
        let a = s.store("a", [8]);
        s.scope("inner", Streaming::strict(), |s| s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1)));
        s.fold("sum", &a, Sum, |a: Tile<u8, 1>| a.as_slice().iter().sum::<u8>())
    });
    g.output("sum", &sum);
    let plan = g.compile().unwrap();
    assert!(plan.scope("s").unwrap().to_string().contains("inner/fill"));
    let mut outputs = futures::executor::block_on(Executor::inline().run(&plan, inputs! {})).unwrap();
    assert_eq!(*outputs.take::<u8>("sum").unwrap(), 8);
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Wide([u8; 128]);

// SAFETY: the type has 128 bytes without padding, and all bytes are valid values.
unsafe impl Element for Wide {}

#[test]
fn elements_are_not_aligned_to_more_than_memory_is() {
    let told = error(Streaming::strict(), |s| {
        let a = s.store::<Wide, 1>("a", [8]);
        s.write("fill", (), &a, |mut a: TileMut<Wide, 1>| a.fill(Wide([0; 128])));
    });
    assert_eq!(told, "scope 's': the elements of store 'a' have no bytes, or are aligned to more than 64");
}

#[test]
fn stores_are_not_too_large() {
    let told = error(Streaming::strict(), |s| {
        s.store::<u8, 2>("a", [usize::MAX, 4]);
    });
    assert_eq!(
        told,
        format!("scope 's': store 'a' has more than 2^40 elements: [{}, 4]: make it smaller, or split it", usize::MAX)
    );
    // Seen to fail (the product of the other axes overflows) when stores without elements had no bound.
    let told = error(Streaming::strict(), |s| {
        s.store::<u8, 3>("a", [0, 1 << 40, 1 << 40]);
    });
    assert!(told.starts_with("scope 's': store 'a' has more than 2^40 elements: [0, "), "{told}");
    let told = error(Streaming::strict(), |s| {
        let (a, b) = (s.store("a", [8]), s.store("b", [8]));
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
        s.write("copy", a.halo([usize::MAX], [1]), &b, copy);
    });
    assert!(told.starts_with("scope 's': operation 'copy' reads store 'a' with a number above 2^40"), "{told}");
}

#[test]
fn empty_scopes_and_empty_stores_end() {
    for streaming in [Streaming::strict(), Streaming::off(), Streaming::strict().over_decompose_factor(7)] {
        let mut g = Graph::new();
        let nothing = g.scope("nothing", streaming, |_| ());
        let (empty, sum) = g.scope("empty", streaming, |s| {
            let (a, b) = (s.store("a", [0, 5]), s.store("b", [0, 5]));
            s.write("fill", (), &a, |mut a: TileMut<u8, 2>| a.fill(1));
            s.write("near", a.halo([1, 1], [1, 1]), &b, |_: Tile<u8, 2>, mut b: TileMut<u8, 2>| b.fill(2));
            let sum = s.fold("sum", &b, Sum, |b: Tile<u8, 2>| b.as_slice().iter().sum::<u8>());
            (s.keep(&b), sum)
        });
        g.output("nothing", &nothing);
        g.output("empty", &empty);
        g.output("sum", &sum);
        let mut outputs = futures::executor::block_on(Executor::inline().run(&g.compile().unwrap(), inputs! {})).unwrap();
        assert_eq!(outputs.take::<Array<u8, 2>>("empty").unwrap().shape(), [0, 5]);
        assert_eq!(*outputs.take::<u8>("sum").unwrap(), 0);
    }
}

#[test]
fn a_store_of_a_scope_that_is_gone_is_refused() {
    for _ in 0..100 {
        let mut old = None;
        let mut g = Graph::new();
        g.scope("a", Streaming::strict(), |s| {
            let a = s.store("a", [8]);
            s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
            old = Some(s.keep(&a));
        });
        let mut g = Graph::new();
        g.scope("s", Streaming::strict(), |s| {
            let b = s.store("b", [8]);
            s.write("fill", (), &b, |mut b: TileMut<f64, 1>| b.fill(1.0));
            old.unwrap()
        });
        let told = g.compile().unwrap_err().to_string();
        assert_eq!(
            told,
            "scope 's': its closure returns a store of another scope: use those of the `Scope` that its closure gets"
        );
    }
}

// Seen to fail with sizes that wrap: then the memory had no bytes.
#[test]
fn batches_in_flight_need_no_more_than_can_be_addressed() {
    let told = error(Streaming::relaxed().in_flight(1 << 16), |s| {
        let stores: Vec<_> = (0..64).map(|_| s.store("s", [1 << 40])).collect();
        for store in &stores {
            s.tiles(store, [1 << 39]);
            s.write("fill", (), store, |_: TileMut<u64, 1>| ());
        }
        for read in stores.chunks(8) {
            let [a, b, c, d, e, f, g, h] = read.try_into().unwrap();
            type T<'a> = Tile<'a, u64, 1>;
            let work = |_: T, _: T, _: T, _: T, _: T, _: T, _: T, _: T| ();
            s.fold("none", (&a, &b, &c, &d, &e, &f, &g, &h), operator("none", || (), |(), ()| ()), work);
        }
    });
    let use_less = "use smaller tiles, or set `in_flight` or `memory_max`";
    assert_eq!(told, format!("scope 's': needs more bytes than can be addressed, with 2 batches in flight: {use_less}"));
}

#[test]
fn copies_to_and_from_a_device_are_of_one_shape() {
    for is_up in [true, false] {
        let told = error(Streaming::strict(), |s| {
            let (a, b) = (s.store::<f32, 2>("a", [10, 5]), s.device_store("b", [10, 3]));
            if is_up {
                s.write("fill", (), &a, |mut a: TileMut<f32, 2>| a.fill(1.0));
                s.upload("copy", &a, &b);
            } else {
                s.write_kernel("fill", (), &b, |s: &mut DeviceStream, mut b: DeviceTileMut<f32, 2>| Ok(s.fill(&mut b, 1.0)?));
                s.download("copy", &b, &a);
            }
        });
        let shapes = if is_up { "'a', [10, 5], to store 'b', [10, 3]" } else { "'b', [10, 3], to store 'a', [10, 5]" };
        assert_eq!(told, format!("scope 's': operation 'copy' copies store {shapes}: let both have one shape"));
    }
}

#[test]
fn parts_of_a_reduction_by_a_kernel_are_not_aligned_to_more_than_memory_is() {
    let told = error(Streaming::strict(), |s| {
        let a = s.device_store::<u64, 1>("a", [8]);
        s.write_kernel("fill", (), &a, |s: &mut DeviceStream, mut a: DeviceTileMut<u64, 1>| Ok(s.fill(&mut a, 1)?));
        let first = operator("first", || Wide([0; 128]), |one: Wide, _| one);
        s.fold_kernel("wide", &a, first, |_: &mut DeviceStream, _: DeviceTile<u64, 1>, _: Parts<Wide>| Ok(()));
    });
    let parts = "the elements of the parts of reduction 'wide' have no bytes, or are aligned to more than 64";
    assert_eq!(told, format!("scope 's': {parts}"));
}

// Seen to abort with memory of no bytes that was aligned to one byte, and without memory on the device.
#[test]
fn stores_without_elements_are_aligned_and_are_on_devices_too() {
    for shape in [[0, 3], [3, 0], [0, 0]] {
        let mut g = Graph::new();
        let (kept, sum) = g.scope("s", Streaming::strict(), |s| {
            let (a, b, c) = (s.store("a", shape), s.device_store("b", shape), s.store("c", shape));
            s.write("fill", (), &a, |mut a: TileMut<f64, 2>| a.fill(1.0));
            s.upload("up", &a, &b);
            s.download("down", &b, &c);
            (s.keep(&c), s.fold("sum", &c, Sum, |c: Tile<f64, 2>| c.as_slice().iter().sum::<f64>()))
        });
        g.output("kept", &kept);
        g.output("sum", &sum);
        let mut outputs = futures::executor::block_on(Executor::inline().run(&g.compile().unwrap(), inputs! {})).unwrap();
        assert_eq!(outputs.take::<Array<f64, 2>>("kept").unwrap().shape(), shape);
        assert_eq!(*outputs.take::<f64>("sum").unwrap(), 0.0);
    }
}

// Seen to fail without the bytes that debug builds write there.
#[cfg(debug_assertions)]
#[test]
fn elements_that_a_closure_forgets_to_write_are_seen() {
    // Tiles of whole rows, which are parts of their store, and others, which are gathered.
    for tile in [[4, 16], [4, 4]] {
        let mut g = Graph::new();
        let kept = g.scope("s", Streaming::strict().in_flight(3), |s| {
            let a = s.store("a", [16, 16]);
            s.tiles(&a, tile);
            s.write("half", (), &a, |mut a: TileMut<u32, 2>| {
                let (rows, columns) = (a.range(0), a.range(1));
                rows.for_each(|row| columns.clone().step_by(2).for_each(|column| a[[row, column]] = 1));
            });
            let b = s.update("nothing", (), &a, |_: TileMut<u32, 2>| ());
            s.keep(&b)
        });
        g.output("kept", &kept);
        let exec = Executor::builder().workers(2).build().unwrap();
        let mut outputs = futures::executor::block_on(exec.run(&g.compile().unwrap(), inputs! {})).unwrap();
        let kept = outputs.take::<Array<u32, 2>>("kept").unwrap();
        assert!(kept.as_slice().chunks(2).all(|pair| pair == [1, 0xA5A5_A5A5]), "{tile:?}: {:?}", kept.as_slice());
    }
}

#[test]
fn a_plan_names_what_is_made_and_not_used() {
    let mut g = Graph::new();
    let kept = g.scope("s", Streaming::strict(), |s| {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| s.store::<u8, 1>(name, [64]));
        for store in [&a, &b, &c, &d] {
            s.write("fill", (), store, |mut tile: TileMut<u8, 1>| tile.fill(1));
        }
        let _ = s.update("inc", (), &b, |mut b: TileMut<u8, 1>| b.fill(2));
        s.save("save", &c, async |_, tile| Ok(tile));
        s.fold("sum", &c, Sum, |_: Tile<u8, 1>| 1);
        s.keep(&d)
    });
    g.output("kept", &kept);
    let plan = g.compile().unwrap().to_string();
    assert!(plan.contains("\nscope 's': at most "), "{plan}");
    assert!(plan.contains("\nunread       a, b, sum: nothing reads, keeps or returns them\n"), "{plan}");
}

/// Returns the panic of a closure that calls `ask` on a tile of `b`, in a run with tiles of 4 rows.
fn panic_of(ask: impl Fn(&Tile<u8, 2>) + Send + Sync + 'static) -> Option<String> {
    let mut g = Graph::new();
    g.scope("s", Streaming::strict(), |s| {
        let (a, b) = (s.store("a", [8, 2]), s.store("b", [8, 2]));
        s.tiles(&a, [4, 2]);
        s.tiles(&b, [4, 2]);
        s.write("fill", (), &a, |mut a: TileMut<u8, 2>| a.fill(1));
        s.write("ask", &a, &b, move |a: Tile<u8, 2>, mut b: TileMut<u8, 2>| {
            b.fill(0);
            ask(&a);
        });
    });
    let plan = g.compile().unwrap();
    let error = futures::executor::block_on(Executor::inline().run(&plan, inputs! {})).err()?;
    assert!(error.to_string().starts_with("node 's' failed"), "{error}");
    Some(format!("{error:#}").rsplit_once("operation ")?.1.to_owned())
}

// Seen to fail when a tile answered None for all elements that it does not have.
#[test]
fn elements_that_only_other_tiles_have_are_a_mistake() {
    let halo = "at [0..4, 0..2]: the element [4, 1] is outside of a tile of [0..4, 0..2]: read the store with a larger `halo`, or `whole`";
    let in_first = format!("'s/ask' panicked in batch 0 of 2, {halo}");
    assert_eq!(panic_of(|a| _ = a.get([4, 1])), Some(in_first.clone()));
    assert_eq!(panic_of(|a| _ = a[[4, 1]]), Some(in_first.clone()));
    assert_eq!(panic_of(|a| _ = a.row(4)), Some(in_first.replace("element [4, 1]", "row [4]")));
    let beyond = "'s/ask' panicked in batch 0 of 2, at [0..4, 0..2]: the element [8, 0] is outside of a store of [8, 2]";
    assert_eq!(panic_of(|a| _ = a[[8, 0]]), Some(beyond.into()));
    assert_eq!(panic_of(|a| assert_eq!((a.get([8, 0]), a.get([usize::MAX, 0]), a.row(8)), (None, None, &[][..]))), None);
}

// Seen to fail when the message proposed a larger halo, which a tile that is written cannot have.
#[test]
fn an_operation_hears_that_it_writes_its_own_tile_only() {
    let text = |ask: fn(&mut TileMut<u8, 2>)| {
        let mut g = Graph::new();
        g.scope("s", Streaming::strict().over_decompose_factor(2).workers(1), |s| {
            let a = s.store("a", [8, 2]);
            s.write("ask", (), &a, move |mut a: TileMut<u8, 2>| ask(&mut a));
        });
        let exec = Executor::inline();
        format!("{:#}", futures::executor::block_on(exec.run(&g.compile().unwrap(), inputs! {})).unwrap_err())
    };
    let own = "is outside of a tile of [0..4, 0..2]: an operation writes its own tile only";
    for told in [text(|a| a[[4, 1]] = 1), text(|a| _ = a.get([4, 1])), text(|a| _ = a.get_mut([4, 1]))] {
        assert!(told.ends_with(&format!("the element [4, 1] {own}")), "{told}");
    }
    assert!(text(|a| _ = a.row_mut(4)).ends_with(&format!("the row [4] {own}")));
}

#[test]
fn transposed_tiles_are_those_of_the_turned_shape() {
    let told = error(Streaming::strict(), |s| {
        let (a, b) = (s.store("a", [4, 6]), s.store("b", [4, 6]));
        s.write("fill", (), &a, |mut a: TileMut<u8, 2>| a.fill(1));
        s.write("turn", a.transposed(), &b, |_: Tile<u8, 2>, mut b: TileMut<u8, 2>| b.fill(1));
    });
    let tiles = "operation 'turn' reads transposed tiles of store 'a', which are those of a store of [6, 4]";
    assert_eq!(told, format!("scope 's': {tiles}, and store 'b' has [4, 6]: let both be the same"));
}

#[test]
fn too_little_memory_names_the_store_that_needs_most() {
    let told = error(Streaming::strict().memory_max(1000), |s| {
        let (a, b) = (s.store("a", [100_000]), s.store("b", [100_000]));
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
        s.write("copy", &a, &b, copy);
        s.keep(&b);
    });
    assert!(
        told.contains("with one batch in flight, of which store 'b' has 100000, whole, and `memory_max` is 1000: allow "),
        "{told}"
    );
}
