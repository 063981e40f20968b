//! Values that one node takes and others read, in other phases.

use anabranch::pipe::Phases;
use anabranch::{Graph, Pipeline, Ranked, Value, take};
use futures::{StreamExt, stream};

use crate::support::{block_on, executors};

/// The phases of the node that makes a list, of one that reads it, and of one that takes it.
fn three(phases: Option<[u32; 3]>) -> anabranch::Result<Pipeline<u64, (u64, u64)>> {
    let built = Pipeline::new("three", &Ranked::default(), |g: &mut Graph, item: Value<u64>| {
        let made = g.task("make", &item, |x: &u64| vec![*x; 8]);
        let taken = g.task("take", take(&made), |list: Vec<u64>| list[0]);
        let read = g.task("read", &made, |list: &Vec<u64>| list.iter().sum());
        if let Some([make, reads, takes]) = phases {
            g.node(&made).phase(make);
            g.node(&read).phase(reads);
            g.node(&taken).phase(takes);
        }
        (read, taken)
    });
    built.and_then(|pipeline| if phases.is_none() { pipeline.phases(Phases::Each) } else { Ok(pipeline) })
}

#[test]
fn a_value_is_read_before_it_is_taken_whatever_the_phases() {
    // Seen to fail with phases that know only the edges of the graph, and not the orders of takers.
    for phases in [None, Some([1, 1, 2]), Some([1, 2, 2]), Some([1, 2, 3]), Some([1, 1, 1])] {
        let pipeline = three(phases).unwrap();
        pipeline.verify().unwrap_or_else(|error| panic!("{phases:?}: {error}"));
        for exec in executors() {
            let results: Vec<_> = block_on(exec.pipe(&pipeline, stream::iter(0..50)).collect());
            let values: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            assert_eq!(values, (0..50).map(|x| (8 * x, x)).collect::<Vec<_>>(), "{phases:?}");
        }
    }
}

#[test]
fn an_item_is_read_before_it_is_taken_whatever_the_phases() {
    // Seen to fail with phases that know only the edges of the graph, and not the orders of takers.
    for phases in [Phases::Written, Phases::Each, Phases::Auto { depth: 2 }] {
        let built = Pipeline::new("two", &Ranked::default(), |g: &mut Graph, item: Value<Vec<u64>>| {
            let taken = g.task("take", take(&item), |list: Vec<u64>| list[0]);
            let read = g.task("read", &item, |list: &Vec<u64>| list.iter().sum());
            g.node(&taken).cost_us(10.0);
            g.node(&read).cost_us(10.0);
            (read, taken)
        });
        let pipeline = built.and_then(|pipeline| pipeline.phases(phases)).unwrap();
        assert!(pipeline.phase_of("read") <= pipeline.phase_of("take"));
        pipeline.verify().unwrap_or_else(|error| panic!("{phases:?}: {error}"));
        for exec in executors() {
            let results: Vec<(u64, u64)> =
                block_on(exec.pipe(&pipeline, stream::iter((0..50).map(|x| vec![x; 8]))).map(Result::unwrap).collect());
            assert_eq!(results, (0..50).map(|x| (8 * x, x)).collect::<Vec<_>>(), "{phases:?}");
        }
    }
}

#[test]
fn a_taker_in_an_earlier_phase_than_a_reader_is_an_error() {
    // Seen to fail with phases that know only the edges of the graph, and not the orders of takers.
    let error = three(Some([1, 3, 2])).map(|_| ()).unwrap_err();
    assert_eq!(error.node(), Some("take"));
    let text = "'take' takes 'make' by value in phase 2, and 'read' reads it in phase 3, a later one: put 'take' in phase 3 or \
                later, or let it read 'make' by reference";
    assert_eq!(error.to_string(), text);
}
