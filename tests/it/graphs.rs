//! Building graphs: the values that a node can read, the order between nodes, and the plans of graphs.

use std::sync::{Arc, Mutex};

use anabranch::graph::{Backend, Each, Memory};
use anabranch::policy::{PerBackend, PerOperator, Single};
use anabranch::{Executor, Graph, HostStream, Inputs, Value, inputs, take};
use futures::future::join_all;

use crate::support::{block_on, chain, executors, plan, value_of};

/// Runs the graph on every executor, and checks its output "out".
fn gives<T: PartialEq + std::fmt::Debug + Send + Sync + 'static>(g: &Graph, expected: &T) {
    let plan = plan(g);
    for exec in executors() {
        let value = value_of::<T>(block_on(exec.run(&plan, Inputs::new())), "out");
        assert_eq!(*value, *expected, "{exec:?}");
    }
}

/// Adds nodes that give 1 to `count`.
fn digits(g: &mut Graph, count: u64) -> Vec<Value<u64>> {
    (1..=count).map(|digit| g.task(format!("digit {digit}"), (), move || digit)).collect()
}

/// Concatenates digits to a number.
fn number(digits: &[&u64]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + **digit)
}

/// Adds nine nodes, which read the first zero to eight of `values`. Returns their values.
macro_rules! arities {
    ($add:ident, $g:expr, $v:expr) => {
        [
            $add!($g, $v, "0",),
            $add!($g, $v, "1", a 0),
            $add!($g, $v, "2", a 0, b 1),
            $add!($g, $v, "3", a 0, b 1, c 2),
            $add!($g, $v, "4", a 0, b 1, c 2, d 3),
            $add!($g, $v, "5", a 0, b 1, c 2, d 3, e 4),
            $add!($g, $v, "6", a 0, b 1, c 2, d 3, e 4, f 5),
            $add!($g, $v, "7", a 0, b 1, c 2, d 3, e 4, f 5, h 6),
            $add!($g, $v, "8", a 0, b 1, c 2, d 3, e 4, f 5, h 6, i 7),
        ]
    };
}

macro_rules! task {
    ($g:expr, $v:expr, $name:literal, $($arg:ident $at:literal),*) => {
        $g.task($name, ($(&$v[$at],)*), |$($arg: &u64),*| number(&[$($arg),*]))
    };
}

macro_rules! kernel {
    ($g:expr, $v:expr, $name:literal, $($arg:ident $at:literal),*) => {
        $g.kernel($name, ($(&$v[$at],)*), |s: &mut HostStream, $($arg: &u64),*| s.launch(|| number(&[$($arg),*])))
    };
}

macro_rules! future {
    ($g:expr, $v:expr, $name:literal, $($arg:ident $at:literal),*) => {
        $g.future($name, ($(&$v[$at],)*), async |$($arg: Arc<u64>),*| Ok(number(&[$(&$arg),*])))
    };
}

macro_rules! try_task {
    ($g:expr, $v:expr, $name:literal, $($arg:ident $at:literal),*) => {
        $g.try_task($name, ($(take(&$v[$at]),)*), |$($arg: u64),*| Ok(number(&[$(&$arg),*])))
    };
}

const NUMBERS: [u64; 9] = [0, 1, 12, 123, 1_234, 12_345, 123_456, 1_234_567, 12_345_678];

fn gives_numbers(mut g: Graph, values: &[Value<u64>]) {
    let out = g.task("all", values, |values: Each<u64>| values.iter().copied().collect::<Vec<u64>>());
    g.output("out", &out);
    gives(&g, &NUMBERS.to_vec());
}

#[test]
fn a_task_reads_up_to_eight_values() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 8);
    let values = arities!(task, g, digits);
    gives_numbers(g, &values);
}

#[test]
fn a_kernel_reads_up_to_eight_values() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 8);
    let values = arities!(kernel, g, digits);
    gives_numbers(g, &values);
}

#[test]
fn an_async_node_reads_up_to_eight_values() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 8);
    let values = arities!(future, g, digits);
    gives_numbers(g, &values);
}

#[test]
fn a_node_takes_up_to_eight_values() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 8);
    let value = try_task!(g, digits, "8", a 0, b 1, c 2, d 3, e 4, f 5, h 6, i 7);
    g.output("out", &value);
    gives(&g, &12_345_678u64);
}

#[test]
fn a_slice_is_read_in_its_order() {
    let mut g = Graph::new();
    let mut digits = digits(&mut g, 100);
    digits.reverse();
    let out = g.task("out", &digits[..], |digits: Each<u64>| {
        assert_eq!((digits.len(), digits.is_empty()), (100, false));
        (digits.iter().copied().collect::<Vec<u64>>(), digits.iter().rev().take(2).copied().collect::<Vec<u64>>())
    });
    g.output("out", &out);
    gives(&g, &((1..=100).rev().collect::<Vec<u64>>(), vec![1u64, 2]));
}

#[test]
fn an_async_node_gets_a_slice_as_arcs() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 9);
    let out = g.future("out", &digits[..], async |digits: Vec<Arc<u64>>| Ok(digits.iter().map(|d| **d).collect::<Vec<u64>>()));
    g.output("out", &out);
    gives(&g, &(1..=9).collect::<Vec<u64>>());
}

#[test]
fn a_slice_may_be_empty() {
    let mut g = Graph::new();
    let none: &[Value<u64>] = &[];
    let out = g.task("out", none, |digits: Each<u64>| digits.is_empty() && digits.iter().next().is_none());
    g.output("out", &out);
    gives(&g, &true);
}

#[test]
fn a_node_mixes_slices_values_and_takes() {
    let mut g = Graph::new();
    let digits = digits(&mut g, 5);
    let sources = (&digits[..2], &digits[2], take(&digits[3]), &digits[4..]);
    let out = g.kernel("out", sources, |_: &mut HostStream, first: Each<u64>, c: &u64, d: u64, last: Each<u64>| {
        let sum: u64 = first.iter().chain(last.iter()).sum();
        (sum, *c, d)
    });
    g.output("out", &out);
    gives(&g, &(1 + 2 + 5u64, 3u64, 4u64));
}

#[test]
fn a_node_may_read_one_value_twice() {
    let mut g = Graph::new();
    let a = g.task("a", (), || 7u64);
    let out = g.task("out", (&a, &a), |first: &u64, second: &u64| std::ptr::eq(first, second) && first + second == 14);
    g.output("out", &out);
    gives(&g, &true);
}

/// A task body that records its name.
fn note(notes: &Arc<Mutex<Vec<&'static str>>>, name: &'static str) -> impl Fn() + Send + Sync + 'static {
    let notes = notes.clone();
    move || notes.lock().unwrap().push(name)
}

#[test]
fn order_edges_order() {
    // Seen to fail without the two lines that add the edges.
    for exec in executors() {
        let notes = Arc::default();
        let mut g = Graph::new();
        let third = g.task("third", (), note(&notes, "third"));
        let second = g.kernel("second", (), {
            let note = note(&notes, "second");
            move |_: &mut HostStream| note()
        });
        let first = g.task("first", (), note(&notes, "first"));
        g.order(&first, &second);
        g.node(&third).after(&second);
        let plan = plan(&g);
        for _ in 0..200 {
            block_on(exec.run(&plan, Inputs::new())).unwrap();
            assert_eq!(std::mem::take(&mut *notes.lock().unwrap()), ["first", "second", "third"]);
        }
    }
}

#[test]
fn an_order_edge_from_an_input_is_no_wait() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let a = g.task("a", &x, |x: &u64| x + 1);
    g.order(&x, &a);
    g.output("out", &a);
    assert_eq!(*value_of::<u64>(block_on(Executor::inline().run(&plan(&g), inputs! { "x" => 1u64 })), "out"), 2);
    assert!(g.shape().edges().is_empty());
}

#[test]
fn a_kernel_is_told_its_stream() {
    let mut g = Graph::new();
    let a = g.kernel("a", (), |s: &mut HostStream| s.id());
    let b = g.kernel("b", (), |s: &mut HostStream| s.id());
    let out = g.task("out", (&a, &b), |a: &u32, b: &u32| (*a, *b));
    g.output("out", &out);
    for (policy, expected) in [(&Single as &dyn anabranch::policy::Policy, (0, 0)), (&PerOperator, (0, 1))] {
        let plan = g.compile_with(policy).unwrap();
        assert_eq!(*value_of::<(u32, u32)>(block_on(Executor::inline().run(&plan, Inputs::new())), "out"), expected);
    }
}

#[test]
fn a_plan_prints_its_programs() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let load = g.task("load", &x, |x: &u64| *x);
    let [left, right] = ["left", "right"].map(|name| g.kernel(name, &load, |_: &mut HostStream, x: &u64| *x));
    let join = g.future("join", (&left, &right), async |l: Arc<u64>, r: Arc<u64>| Ok(*l + *r));
    g.output("join", &join);
    let expected = "\
policy per-backend: 4 nodes, 1 stream and 1 host stream, 1 record, 1 wait
stream 0   wait host 0@1 · run left · run right · run join
host 0     run load · record host 0@1
";
    assert_eq!(g.compile_with(&PerBackend).unwrap().to_string(), expected);
}

#[test]
fn a_plan_does_not_change_when_its_graph_grows() {
    let mut g = Graph::new();
    let a = g.task("a", (), || 1u64);
    g.output("out", &a);
    let before = plan(&g);
    let b = chain(&mut g, &a, 10);
    g.output("b", &b);
    let after = plan(&g);
    drop(g);
    for (plan, nodes, outputs) in [(before, 1, 1), (after, 11, 2)] {
        assert_eq!(plan.schedule().order().len(), nodes);
        let mut given = block_on(Executor::inline().run(&plan, Inputs::new())).unwrap();
        assert_eq!(given.names().count(), outputs);
        assert_eq!(*given.take::<u64>("out").unwrap(), 1);
    }
}

#[test]
fn a_graph_without_nodes_runs() {
    let plan = plan(&Graph::new());
    for exec in executors() {
        assert_eq!(block_on(exec.run(&plan, Inputs::new())).unwrap().names().count(), 0);
    }
}

#[test]
fn runs_of_one_plan_do_not_share_values() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let a = chain(&mut g, &x, 20);
    let b = g.future("b", &a, async |a: Arc<u64>| {
        smol::future::yield_now().await;
        Ok(*a)
    });
    let out = chain(&mut g, &b, 20);
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        let runs = (0..100u64).map(|x| exec.run(&plan, inputs! { "x" => x }));
        let values: Vec<u64> = block_on(join_all(runs)).into_iter().map(|run| *value_of::<u64>(run, "out")).collect();
        assert_eq!(values, (40..140).collect::<Vec<u64>>());
    }
}

#[test]
fn a_backend_that_is_set_late_counts_for_edges_that_are_there() {
    // Seen to fail when each edge kept the memory that its source had when the edge was made.
    let mut g = Graph::new();
    let a = g.task("a", (), || 1_u64);
    let b = g.task("b", &a, |a: &u64| a + 1);
    g.output("b", &b);
    g.node(&a).backend(Backend::Gpu);
    let shape = g.shape();
    assert_eq!(shape.read_memory(&shape.edges()[0]), Some(Memory::Gpu));
    let (schedule, plan) = (shape.schedule_with(&Single).unwrap(), g.compile_with(&Single).unwrap());
    assert_eq!(schedule.to_string(), plan.schedule().to_string());
}
