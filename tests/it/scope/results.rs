//! What a scope gives is owned: nodes take it, loops carry it, and pipelines give it away.

use anabranch::graph::times;
use anabranch::scope::{Array, Kept, Scalar, Scope, Streaming, Sum, Tile, TileMut};
use anabranch::{Executor, Graph, Pipeline, Ranked, Value, inputs, take};
use futures::executor::block_on;
use futures::{TryStreamExt, stream};

use crate::support::executors;

const N: usize = 40_000;

/// Numbers from `first` on, and their sum.
fn numbers(s: &mut Scope, first: &Value<u64>) -> (Kept<u64, 1>, Scalar<u64>) {
    let a = s.store("a", [N]);
    s.write("fill", first, &a, |first: &u64, mut a: TileMut<u64, 1>| {
        a.range(0).for_each(|at| a[[at]] = first + at as u64);
    });
    let sum = s.fold("sum", &a, Sum, |a: Tile<u64, 1>| a.as_slice().iter().sum::<u64>());
    (s.keep(&a), sum)
}

fn sum(first: u64) -> u64 {
    (first..).take(N).sum()
}

// Seen to fail when the async node of a scope shared what it gives.
#[test]
fn a_scope_gives_the_results_of_a_pipeline() {
    for exec in executors() {
        let pipeline = Pipeline::new("numbers", &Ranked::default(), |g: &mut Graph, first: Value<u64>| {
            let (numbers, sum) = g.scope("s", Streaming::strict(), |s| numbers(s, &first));
            (numbers, sum)
        });
        let results = exec.pipe(&pipeline.unwrap(), stream::iter(0..20));
        let results: Vec<(Array<u64, 1>, u64)> = block_on(results.try_collect()).unwrap();
        assert_eq!(results.len(), 20);
        for (first, (array, total)) in (0..).zip(results) {
            assert_eq!((array.shape(), array[[N - 1]], total), ([N], first + N as u64 - 1, sum(first)), "{exec:?}");
        }
    }
}

#[test]
fn nodes_take_what_a_scope_gives_and_loops_carry_it() {
    let mut g = Graph::new();
    let first = g.input::<u64>("first");
    let (numbers, _) = g.scope("s", Streaming::strict(), |s| numbers(s, &first));
    let numbers = g.repeat("loop", take(&numbers), times(3), |b, before| {
        let doubled = b.task("double", take(&before), |numbers: Array<u64, 1>| {
            Array::new(numbers.shape(), numbers.into_vec().into_iter().map(|number| 2 * number).collect()).unwrap()
        });
        b.scope("copy", Streaming::strict(), |s| {
            let a = s.store("a", [N]);
            s.write("in", &doubled, &a, |from: &Array<u64, 1>, mut a: TileMut<u64, 1>| {
                let rows = a.range(0);
                a.as_mut_slice().copy_from_slice(&from.as_slice()[rows]);
            });
            s.keep(&a)
        })
    });
    let vec = g.task("vec", take(&numbers), Array::<u64, 1>::into_vec);
    g.output("vec", &vec);
    let plan = g.compile().unwrap();
    for exec in executors() {
        let mut outputs = block_on(exec.run(&plan, inputs! { "first" => 5_u64 })).unwrap();
        let vec = outputs.take::<Vec<u64>>("vec").unwrap();
        assert!(vec.iter().enumerate().all(|(at, &number)| number == 8 * (5 + at as u64)), "{exec:?}");
    }
}

/// All that a scope gives is shared if some of it is.
#[test]
fn a_node_takes_nothing_of_a_scope_that_shares() {
    let mut g = Graph::new();
    let first = g.input::<u64>("first");
    let (numbers, sum) = g.scope("s", Streaming::strict(), |s| numbers(s, &first));
    g.output("sum", &sum);
    let vec = g.task("vec", take(&numbers), Array::<u64, 1>::into_vec);
    g.output("vec", &vec);
    let told = g.compile().unwrap_err().to_string();
    assert_eq!(told, "'vec' takes 's' by value, but the async node 's' shares it as an Arc: read it by reference instead");
}

#[test]
fn a_result_may_be_returned_twice() {
    let mut g = Graph::new();
    let first = g.input::<u64>("first");
    let ((one, sum), (other, again)) = g.scope("s", Streaming::strict(), |s| {
        let (kept, sum) = numbers(s, &first);
        ((kept, sum), (kept, sum))
    });
    [("one", one), ("other", other)].iter().for_each(|(name, value)| g.output(*name, value));
    [("sum", sum), ("again", again)].iter().for_each(|(name, value)| g.output(*name, value));
    let plan = g.compile().unwrap();
    let mut outputs = block_on(Executor::inline().run(&plan, inputs! { "first" => 1_u64 })).unwrap();
    let sums = ["sum", "again"].map(|name| *outputs.take::<u64>(name).unwrap());
    assert_eq!(sums, [self::sum(1); 2]);
    let arrays = ["one", "other"].map(|name| outputs.take::<Array<u64, 1>>(name).unwrap()[[2]]);
    assert_eq!(arrays, [3; 2]);
}
