//! Several destructors that panic in one place: each runs, at most one panic reaches the caller, and the
//! process survives.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anabranch::graph::Bodies;
use anabranch::{BoxError, Engine, Error, Executor, Flow, Graph, Inputs, Name, Op, Value, Var, inputs};

use crate::support::{block_on, executor, executors, panic_quietly, plan, until};

/// Makes bombs, and counts those that have panicked.
#[derive(Clone, Default)]
struct Bombs(Arc<AtomicUsize>);

/// Panics when it is dropped.
struct Bomb(Bombs);

impl Bombs {
    fn bomb(&self) -> Bomb {
        Bomb(self.clone())
    }

    fn gone_off(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, SeqCst);
        panic_quietly("it goes off");
    }
}

struct BombError(#[allow(dead_code, reason = "only its drop matters")] Bomb);

impl std::fmt::Debug for BombError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for BombError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a bomb")
    }
}

impl std::error::Error for BombError {}

/// Returns whether the drop panicked.
fn drop_panics<T>(value: T) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(value))).is_err()
}

/// Nodes of a plan that fails with several errors that are bombs.
fn failing(bombs: &Bombs, count: usize) -> Graph {
    let mut g = Graph::new();
    for number in 0..count {
        let bombs = bombs.clone();
        g.try_task(format!("{number}"), (), move || -> Result<(), BoxError> { Err(BombError(bombs.bomb()).into()) });
    }
    g
}

// Seen to abort with an `Error` whose source is a plain `Arc`.
#[test]
fn the_errors_of_all_failed_nodes_are_dropped() {
    for exec in executors() {
        let bombs = Bombs::default();
        let error: Error = block_on(exec.run(&plan(&failing(&bombs, 3)), Inputs::new())).unwrap_err();
        assert_eq!(error.others().len(), 2);
        // A worker that leaves the run may hold them, too. Then it drops them.
        drop_panics(error);
        until(|| bombs.gone_off() == 3);
    }
}

// Seen to abort with `Dropped::drop` of the arena unguarded.
#[test]
fn the_captures_of_all_bodies_are_dropped() {
    let bombs = Bombs::default();
    let mut g = Graph::new();
    for number in 0..300 {
        // Large enough for several chunks of the arena.
        let captured = (bombs.bomb(), [0u8; 100]);
        g.task(format!("{number}"), (), move || _ = &captured);
    }
    let plan = plan(&g);
    assert!(!drop_panics(g), "the plan has them, too");
    assert!(drop_panics(plan));
    assert_eq!(bombs.gone_off(), 300);
}

// Seen to abort with `Bodies` of plain boxes.
#[test]
fn the_closures_of_all_bodies_that_come_as_data_are_dropped() {
    let bombs = Bombs::default();
    let bodies = ["a", "b", "c"].into_iter().fold(Bodies::new(), |bodies, command| {
        let bomb = bombs.bomb();
        bodies.node(command, move |g: &mut Graph, name: &Name, ()| -> Value<u8> {
            let _ = &bomb;
            g.input(name)
        })
    });
    assert!(drop_panics(bodies));
    assert_eq!(bombs.gone_off(), 3);
}

/// Reads two inputs, and a third that is a number.
fn reads_two() -> Graph {
    let mut g = Graph::new();
    let (a, b, c) = (g.input::<Bomb>("a"), g.input::<Bomb>("b"), g.input::<u8>("c"));
    g.task("reads", (&a, &b, &c), |_: &Bomb, _: &Bomb, _: &u8| ());
    g
}

// Seen to abort with `Given` of plain boxes.
#[test]
fn all_inputs_of_a_run_that_never_starts_are_dropped() {
    let plan = plan(&reads_two());
    for exec in executors() {
        let bombs = Bombs::default();
        let two = || inputs! { "a" => bombs.bomb(), "b" => bombs.bomb() };
        assert!(block_on(exec.run(&plan, two())).unwrap_err().to_string().contains('c'), "it names what is missing");
        assert_eq!(bombs.gone_off(), 2);
        drop(exec.run(&plan, two()));
        let run = exec.run(&plan, two());
        run.cancel();
        assert!(block_on(run).unwrap_err().is_cancelled());
        assert_eq!(bombs.gone_off(), 6);
        assert!(drop_panics(two()), "nobody but the caller has had these");
        assert_eq!(bombs.gone_off(), 8);
    }
}

// Seen to abort with `Outputs` of plain `Arc`s.
#[test]
fn all_outputs_are_dropped() {
    let bombs = Bombs::default();
    let mut g = Graph::new();
    for name in ["a", "b", "c"] {
        let bombs = bombs.clone();
        let made = g.task(name, (), move || bombs.bomb());
        g.output(name, &made);
    }
    let plan = plan(&g);
    for (exec, before) in executors().into_iter().zip([0, 3, 6, 9, 12]) {
        let outputs = block_on(exec.run(&plan, Inputs::new())).unwrap();
        assert!(drop_panics(outputs), "the first is heard");
        assert_eq!(bombs.gone_off(), before + 3);
    }
}

fn engines() -> [(Executor, Engine); 3] {
    [executor(0), executor(1), Executor::sim(5)].map(|exec| (exec.clone(), Engine::new(&exec).unwrap()))
}

/// Returns an operation that writes three variables of bombs, as a tuple or as a slice.
fn overwrites<'v>(bombs: &Bombs, vars: &'v [Var<Bomb>; 3], as_slice: bool) -> Op<'v> {
    let new = bombs.clone();
    match as_slice {
        true => Op::task("writes", (), &vars[..], move || vec![new.bomb(), new.bomb(), new.bomb()]),
        false => {
            let [a, b, c] = vars;
            Op::task("writes", (), (a, b, c), move || (new.bomb(), new.bomb(), new.bomb()))
        }
    }
}

// Seen to abort with `overwrite` unguarded, and to lose new values with a `put` that stops at the first
// failure.
#[test]
fn all_values_behind_an_overwrite_are_dropped_and_all_new_ones_written() {
    for ((_exec, engine), as_slice) in engines().into_iter().flat_map(|made| [(made.clone(), false), (made, true)]) {
        let (old, new) = (Bombs::default(), Bombs::default());
        let vars = [0, 1, 2].map(|number| engine.var(format!("v{number}"), old.bomb()));
        let pushed = block_on(engine.push(overwrites(&new, &vars, as_slice))).unwrap();
        let error = block_on(pushed).unwrap_err();
        assert_eq!((error.node(), error.is_panic()), (Some("writes"), true));
        assert_eq!(format!("{error:#}"), "operation 'writes' failed: dropping the value of 'v0' panicked: it goes off");
        assert_eq!((old.gone_off(), new.gone_off()), (3, 0));
        drop(vars);
        (0..3).for_each(|_| assert!(block_on(engine.idle()).is_err_and(|freed| freed.is_panic())));
        block_on(engine.idle()).unwrap();
        assert_eq!(new.gone_off(), 3);
    }
}

// Seen to abort with a plain drop of the values.
#[test]
fn all_values_that_are_too_many_are_dropped() {
    for (_exec, engine) in engines() {
        let bombs = Bombs::default();
        let vars = [engine.empty_var::<Bomb>("v")];
        let new = bombs.clone();
        let op = Op::task("writes", (), &vars[..], move || vec![new.bomb(), new.bomb(), new.bomb()]);
        let error = block_on(block_on(engine.push(op)).unwrap()).unwrap_err();
        assert!(
            format!("{error:#}").ends_with("values returned: 3, variables to write: 1; return one value for each variable"),
            "{error:#}"
        );
        assert_eq!(bombs.gone_off(), 3);
    }
}

// Seen to fail: the poll of the flow panicked.
#[test]
fn the_value_of_a_flow_whose_push_was_refused_panics_in_its_drop() {
    let (exec, bombs) = (Executor::inline(), Bombs::default());
    let (own, bomb) = (exec.clone(), bombs.bomb());
    let flow = exec.flow(async move |f: &Flow| {
        drop(own.shutdown());
        let _ = f.task("refused", (), || 1);
        Ok(bomb)
    });
    let ended = catch_unwind(AssertUnwindSafe(|| block_on(flow).map(std::mem::forget))).expect("the panic ends in the flow");
    assert!(ended.unwrap_err().is_shut_down());
    assert_eq!(bombs.gone_off(), 1);
}
