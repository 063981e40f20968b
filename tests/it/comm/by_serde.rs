//! Values that cross by `serde`: they come back as they were. A value without bytes, or bytes of no value, is
//! an error of the node.

use std::borrow::Cow;

use anabranch::comm::{Serde, Wire, World};
use anabranch::{BoxError, Executor, Flow, Graph, Inputs};
use futures::executor::block_on;
use serde::{Deserialize, Serialize};

use super::parcels::{Fragile, WAYS, exchange_in_a_flow, exchange_in_a_graph};
use super::{all, each_rank};

#[test]
fn values_of_nodes_come_back_as_they_were() {
    // Seen to fail when `wire_serde` let no type cross but the first, and when the last byte was left out.
    for ranks in 1..=4 {
        for number in [0, 1, 2, 40] {
            all(each_rank(ranks, |world| async move { exchange_in_a_graph(&world, number).await }));
        }
    }
}

#[test]
fn values_of_flows_come_back_as_they_were() {
    // Seen to fail when the last byte was left out.
    all(each_rank(2, |world| async move { exchange_in_a_flow(&world).await }));
}

#[test]
fn a_value_without_bytes_breaks_the_world_by_the_name_of_the_node() {
    // Seen to hang when an encoding that failed did not break the world.
    for way in WAYS {
        let ends = each_rank(2, |world| async move {
            let error = way.go(&world, Fragile::NotEncoded).await.unwrap_err();
            // A rank that leaves a broken world says nothing new.
            (world, error)
        });
        let [of_0, of_1] = [&ends[0].1, &ends[1].1];
        let (text_0, text_1) = (format!("{of_0:#}"), format!("{of_1:#}"));
        let why = "a value of type `it::comm::parcels::Fragile` has no bytes: ";
        assert!(!of_1.is_world_broken() && text_1.contains("'fragile") && text_1.contains(why), "{way:?}: {text_1}");
        assert!(of_0.is_world_broken() && of_0.rank() == Some(1), "{way:?}: {text_0}");
        assert!(text_0.contains("rank 1 has abandoned the run: 'fragile") && text_0.contains(why), "{way:?}: {text_0}");
        assert!(ends.iter().all(|(world, _)| world.error().is_some()), "{way:?}");
    }
}

#[test]
fn a_value_without_bytes_in_a_world_of_one_rank_is_an_error_of_the_node() {
    // Seen to fail when the world broke, which has no other rank.
    let world = World::local(1).unwrap().remove(0);
    let ended = block_on(Executor::inline().flow(async |f: &Flow| {
        let x = f.value("x", Serde(Fragile::NotEncoded));
        f.get(&f.broadcast(&world, "fragile", &x, 0)).await.map(drop)
    }));
    insta::assert_snapshot!(format!("{:#}", ended.unwrap_err()), @"operation 'fragile' failed: a value of type `it::comm::parcels::Fragile` has no bytes: Serde Serialization Error");
    assert!(world.error().is_none());
}

#[test]
fn bytes_of_no_value_are_an_error_of_the_node_that_receives_them() {
    // Seen to fail when such bytes broke the world.
    for way in WAYS {
        let ends = each_rank(2, |world| async move { (way.go(&world, Fragile::NotDecoded).await, world) });
        let text = format!("{:#}", ends[0].0.as_ref().unwrap_err());
        let why = "1 bytes are no value of type `it::comm::parcels::Fragile` ";
        assert!(text.contains("'fragile") && text.contains(why), "{way:?}: {text}");
        assert!(ends.iter().all(|(_, world)| world.error().is_none()), "{way:?}");
    }
}

#[test]
fn values_that_fail_on_no_rank_arrive() {
    // Seen to fail when the last byte was left out.
    for way in WAYS {
        let ends = all(each_rank(2, |world| async move { way.go(&world, Fragile::Whole).await }));
        assert_eq!(ends, [Fragile::Whole; 2], "{way:?}");
    }
}

#[test]
fn bytes_of_another_type_are_an_error() {
    // Seen to fail (bytes that were left) with `postcard::from_bytes`.
    let bytes = Serde((7_u8, "a name".to_owned())).to_wire().unwrap().into_owned();
    let mistake = |error: BoxError| error.to_string();
    insta::assert_snapshot!(mistake(Serde::<u8>::from_wire(&bytes).unwrap_err()), @"8 bytes are no value of type `u8` (7 are left): let the sender and the receiver use the same type");
    insta::assert_snapshot!(mistake(Serde::<(u8, String, u8)>::from_wire(&bytes).unwrap_err()), @"8 bytes are no value of type `(u8, alloc::string::String, u8)` (Hit the end of buffer, expected more data): let the sender and the receiver use the same type");
    insta::assert_snapshot!(mistake(Serde::<Vec<bool>>::from_wire(&bytes).unwrap_err()), @"8 bytes are no value of type `alloc::vec::Vec<bool>` (Found a bool that wasn't 0 or 1): let the sender and the receiver use the same type");
}

#[test]
fn a_type_that_looks_at_its_own_form_is_an_error() {
    // Seen to fail with JSON.
    #[derive(Debug, Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct Inner {
        x: u32,
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u32),
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Number { x: u32 },
    }
    assert!(Serde(Flat { inner: Inner { x: 1 } }).to_wire().is_err());
    let back = Serde(Untagged::Number(1)).to_wire().and_then(|bytes| Serde::<Untagged>::from_wire(&bytes));
    assert!(back.is_err());
    let back = Serde(Tagged::Number { x: 1 }).to_wire().and_then(|bytes| Serde::<Tagged>::from_wire(&bytes));
    assert!(back.is_err());
}

/// A value that crosses by itself, and by `serde`.
#[derive(Serialize, Deserialize)]
struct Both(u8);

impl Wire for Both {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(vec![!self.0].into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        u8::from_wire(bytes).map(|byte| Self(!byte))
    }
}

#[test]
fn ranks_that_let_a_type_cross_in_different_ways_disagree() {
    // Seen to fail (no rank had an error) when both ways had the same name.
    let errors = each_rank(2, |world: World| async move {
        let mut g = Graph::new();
        let x = g.task("x", (), || Both(7));
        let y = g.task("y", &x, |x: &Both| x.0);
        g.node(&x).rank(1);
        g.output("y", &y);
        if world.rank() == 0 {
            g.wire::<Both>()
        } else {
            g.wire_serde::<Both>()
        };
        Executor::inline().run(&g.compile_for(&world).unwrap(), Inputs::new()).await.unwrap_err();
        world.error().unwrap().to_string()
    });
    insta::assert_snapshot!(errors[0], @"the ranks disagree about node 2 of the graph, counted from 0: on rank 0 it is 'x to all ranks', on rank 1 a node of this name with another type, other edges, or another place. Every rank must build the same graph, and start the same work in the same order");
    assert_eq!(errors[0], errors[1]);
}
