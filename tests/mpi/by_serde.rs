//! Values that cross by `serde`, over MPI.

use anabranch::comm::World;
use anabranch::error::Result;
use futures::executor::block_on;

use crate::launch::{each_rank, each_rank_alone};
use crate::parcels::{Fragile, WAYS, Way, exchange_in_a_flow, exchange_in_a_graph};

#[test]
fn values_of_nodes_come_back_as_they_were() {
    // Seen to fail when the last byte was left out.
    each_rank(3, "by_serde::values_of_nodes_come_back_as_they_were", |world| {
        for number in [0, 1, 2, 40, 20_000] {
            block_on(exchange_in_a_graph(&world, number)).unwrap();
        }
    });
}

#[test]
fn values_of_flows_come_back_as_they_were() {
    // Seen to fail when the last byte was left out.
    each_rank(2, "by_serde::values_of_flows_come_back_as_they_were", |world| {
        block_on(exchange_in_a_flow(&world)).unwrap();
    });
}

/// Lets rank 1 give a value in each way, each time in a new world. `check` gets the end on this rank.
fn in_each_way(fragile: Fragile, check: impl Fn(Way, &World, Result<Fragile>)) {
    for way in WAYS {
        let world = World::mpi().unwrap();
        check(way, &world, block_on(way.go(&world, fragile)));
    }
}

#[test]
fn a_value_without_bytes_breaks_the_world_by_the_name_of_the_node() {
    // Seen to fail (rank 0 did not learn why) when an encoding that failed did not break the world.
    each_rank_alone(2, "by_serde::a_value_without_bytes_breaks_the_world_by_the_name_of_the_node", |first| {
        in_each_way(Fragile::NotEncoded, |way, world, ended| {
            let error = ended.unwrap_err();
            let text = format!("{error:#}");
            let why = "a value of type `mpi::parcels::Fragile` has no bytes: ";
            assert!(text.contains("'fragile") && text.contains(why), "{way:?}: {text}");
            if world.rank() == 0 {
                assert!(error.is_world_broken() && error.rank() == Some(1), "{way:?}: {text}");
                assert!(text.contains("rank 1 has abandoned the run: 'fragile"), "{way:?}: {text}");
            } else {
                assert!(!error.is_world_broken(), "{way:?}: {text}");
            }
        });
        assert!(first.error().is_none());
    });
}

#[test]
fn bytes_of_no_value_are_an_error_of_the_node_that_receives_them() {
    // Seen to fail when such bytes broke the world.
    each_rank(2, "by_serde::bytes_of_no_value_are_an_error_of_the_node_that_receives_them", |_| {
        in_each_way(Fragile::NotDecoded, |way, world, ended| {
            assert!(world.error().is_none(), "{way:?}");
            if world.rank() == 1 && matches!(way, Way::Message | Way::MessageOfFlow) {
                return assert_eq!(ended.unwrap(), Fragile::NotDecoded);
            }
            let text = format!("{:#}", ended.unwrap_err());
            let why = "1 bytes are no value of type `mpi::parcels::Fragile` ";
            assert!(text.contains("'fragile") && text.contains(why), "{way:?}: {text}");
        });
    });
}

#[test]
fn values_that_fail_on_no_rank_arrive() {
    // Seen to fail when the last byte was left out.
    each_rank(2, "by_serde::values_that_fail_on_no_rank_arrive", |_| {
        in_each_way(Fragile::Whole, |_, _, ended| assert_eq!(ended.unwrap(), Fragile::Whole));
    });
}
