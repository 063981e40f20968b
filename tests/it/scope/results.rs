//! The results of a scope are owned: nodes take them, loops carry them, and pipelines return them.

use std::sync::Arc;

use anabranch::graph::times;
use anabranch::scope::{Array, Kept, Scalar, Scope, Streaming, Sum, Tile, TileMut};
use anabranch::{Executor, Graph, Pipeline, Ranked, Value, inputs, take};
use futures::executor::block_on;
use futures::{TryStreamExt, stream};

use crate::support::{executors, until};

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

// Seen to fail when the async node of a scope shared its results.
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

/// All results of a scope are shared if one is.
#[test]
fn a_node_takes_nothing_of_a_scope_that_shares() {
    let mut g = Graph::new();
    let first = g.input::<u64>("first");
    let (numbers, sum) = g.scope("s", Streaming::strict(), |s| numbers(s, &first));
    g.output("sum", &sum);
    let vec = g.task("vec", take(&numbers), Array::<u64, 1>::into_vec);
    g.output("vec", &vec);
    let told = g.compile().unwrap_err().to_string();
    let sharer = "the output 'sum' (all values of 's' are shared if one is)";
    assert_eq!(told, format!("'vec' takes 's' by value, but {sharer} shares it as an Arc: read it by reference instead"));
}

/// A value whose live instances are counted.
struct Alive(Arc<()>);

/// A number, and a value that is counted.
fn counted(s: &mut Scope, x: &Value<u64>, alive: &Arc<()>) -> (Scalar<u64>, Scalar<Alive>) {
    let alive = alive.clone();
    (s.value("number", x, |x: &u64| x + 1), s.value("counted", (), move || Alive(alive.clone())))
}

fn seen(g: &mut Graph, counted: &Value<Alive>) {
    g.task("seen", counted, |counted: &Alive| assert!(Arc::strong_count(&counted.0) > 1));
}

/// Runs a pipeline whose results are the numbers of the items plus `more`. Checks that each item in flight
/// holds at most `each` clones of the `Arc` that `build` gets, and that all are dropped at the end.
fn is_dropped_with_items(more: u64, each: usize, build: impl Fn(&mut Graph, Value<u64>, &Arc<()>) -> Value<u64>) {
    for exec in executors() {
        let alive = Arc::new(());
        let pipeline = Pipeline::new("numbers", &Ranked::default(), |g: &mut Graph, x: Value<u64>| build(g, x, &alive));
        let pipeline = pipeline.unwrap();
        let before = Arc::strong_count(&alive);
        let mut results = exec.pipe(&pipeline, stream::iter(0..20));
        for item in 0..20 {
            assert_eq!(block_on(results.try_next()).unwrap(), Some(item + more));
            let most = before + each * pipeline.max_in_flight() as usize;
            assert!(Arc::strong_count(&alive) <= most, "{exec:?}: {} are alive", Arc::strong_count(&alive));
        }
        assert_eq!(block_on(results.try_next()).unwrap(), None);
        assert_eq!(Arc::strong_count(&alive), before, "{exec:?}");
    }
}

// Seen to fail (one stays for each item) when the values beside a result were not released.
#[test]
fn what_lies_beside_a_result_is_dropped_with_its_item() {
    is_dropped_with_items(1, 1, |g, x, held| {
        let (number, counted) = g.scope("s", Streaming::strict(), |s| counted(s, &x, held));
        seen(g, &counted);
        number
    });
}

// Seen to fail (one stays for each item in flight) when only the outermost graph was checked.
#[test]
fn what_lies_beside_the_result_of_a_loop_is_dropped_with_its_item() {
    // The value of the previous iteration, and the one that is being made.
    is_dropped_with_items(3, 2, |g, x, held| {
        let last = g.repeat("loop", &x, times(3), |b, x| {
            let (number, counted) = b.scope("s", Streaming::strict(), |s| counted(s, &x, held));
            seen(b, &counted);
            number
        });
        g.task("last", &last, |&last: &u64| last)
    });
}

// Seen to fail (one stays for each iteration, or for the last one) when the values beside a result were not
// released.
#[test]
fn what_lies_beside_the_result_of_an_inner_graph_is_dropped() {
    let alive = Arc::new(());
    let (in_loop, in_arm) = (alive.clone(), alive.clone());
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let x = g.repeat("loop", &x, times(10), move |b, x| {
        let (number, counted) = b.scope("s", Streaming::strict(), |s| counted(s, &x, &in_loop));
        seen(b, &counted);
        number
    });
    let side = g.task("side", (), || 0_usize);
    let branch = g.branch("branch", &side, &x);
    let y = branch.arm(move |a, x| {
        let (number, counted) = a.scope("s", Streaming::strict(), |s| counted(s, &x, &in_arm));
        seen(a, &counted);
        number
    });
    let y = y.join();
    g.output("y", &y);
    let plan = g.compile().unwrap();
    let before = Arc::strong_count(&alive);
    for exec in executors() {
        for x in 0..3_u64 {
            let mut outputs = block_on(exec.run(&plan, inputs! { "x" => x })).unwrap();
            assert_eq!(*outputs.take::<u64>("y").unwrap(), x + 11, "{exec:?}");
        }
        until(|| Arc::strong_count(&alive) == before);
    }
}

// Seen to fail when a section had no plans of scopes.
#[test]
fn a_section_has_the_plans_of_its_scopes() {
    let mut g = Graph::new();
    let first = g.task("first", (), || 1_u64);
    let (_, sum) = g.scope("s", Streaming::strict(), |s| numbers(s, &first));
    let (_, other) = g.scope("t", Streaming::strict(), |s| numbers(s, &first));
    g.output("sum", &sum);
    g.output("other", &other);
    let plan = g.section(&["s"], &[]).unwrap().compile().unwrap();
    assert_eq!((plan.scope("s").is_some(), plan.scope("t").is_some()), (true, false));
    assert!(plan.to_string().contains("\nscope 's': at most "), "{plan}");
}

// Seen to fail when each of them was a value of its own.
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
