//! Real runs on the simulated device: orders, replays, every order, faults.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anabranch::sim::{Faults, Order};
use anabranch::{Engine, Executor, Graph, Inputs, Op, Plan, Value, explore};

use crate::support::{block_on, plan};

/// A plan of a fan of `width` with a join, and the list in which its nodes record themselves as they run.
fn fan(width: usize) -> (Plan, Arc<Mutex<Vec<usize>>>) {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut g = Graph::new();
    let source = g.task("source", (), || 0usize);
    let middle: Vec<Value<usize>> = (0..width)
        .map(|node| {
            let ran = ran.clone();
            g.task(format!("m{node}"), &source, move |_: &usize| {
                ran.lock().unwrap().push(node);
                node
            })
        })
        .collect();
    let join = g.task("join", &middle[..], |all: anabranch::graph::Each<'_, usize>| all.iter().sum::<usize>());
    g.output("sum", &join);
    (plan(&g), ran)
}

fn order_of(exec: &Executor, (plan, ran): &(Plan, Arc<Mutex<Vec<usize>>>)) -> Vec<usize> {
    ran.lock().unwrap().clear();
    block_on(exec.run(plan, Inputs::new())).unwrap();
    ran.lock().unwrap().clone()
}

#[test]
fn a_seed_gives_one_order_and_other_seeds_give_others() {
    // Seen to fail with the newest ticket taken.
    let fan = fan(6);
    let orders: BTreeSet<Vec<usize>> = (0..60).map(|seed| order_of(&Executor::sim(seed), &fan)).collect();
    assert!(orders.len() > 40, "{} orders", orders.len());
    for seed in 0..20 {
        assert_eq!(order_of(&Executor::sim(seed), &fan), order_of(&Executor::sim(seed), &fan));
    }
}

#[test]
fn choices_replay_an_order() {
    // Seen to fail with choices that are one behind.
    let fan = fan(6);
    for seed in 0..50 {
        let exec = Executor::sim(seed);
        let order = order_of(&exec, &fan);
        let again = Executor::builder().simulated(Order::Replay(exec.choices()), Faults::default()).build().unwrap();
        assert_eq!(order_of(&again, &fan), order);
    }
}

#[test]
fn choices_that_there_are_not_fail_the_run() {
    // Seen to pass when such a choice is replaced by the last possible one.
    let (plan, _) = fan(3);
    let exec = Executor::builder().simulated(Order::Replay(vec![0, 9]), Faults::default()).build().unwrap();
    let error = block_on(exec.run(&plan, Inputs::new())).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("choice number 1 to replay, counted from 0, is 9, and there are "), "{error}");
}

#[test]
fn every_order_of_real_nodes_is_explored() {
    // Seen to fail with programs that run on without a choice.
    for (width, expected) in [(1, 1), (3, 6), (4, 24)] {
        let fan = fan(width);
        let mut orders = BTreeSet::new();
        let explored = explore(1_000, |exec| {
            orders.insert(order_of(exec, &fan));
            Ok(())
        });
        let explored = explored.unwrap();
        assert!(explored.is_complete);
        assert_eq!((orders.len() as u64, explored.orders >= expected), (expected, true), "{explored:?}");
    }
}

#[test]
fn exploring_finds_what_depends_on_luck() {
    // Two unordered nodes read and write `total`: only some orders lose an addition.
    let total = Arc::new(Mutex::new(0));
    let mut g = Graph::new();
    for name in ["one", "other"] {
        let (reads, writes) = (total.clone(), total.clone());
        let seen = g.task(format!("{name} reads"), (), move || *reads.lock().unwrap());
        g.task(format!("{name} writes"), &seen, move |seen: &i32| *writes.lock().unwrap() = seen + 1);
    }
    let plan = plan(&g);
    let mut totals = Vec::new();
    let explored = explore(100, |exec| {
        *total.lock().unwrap() = 0;
        block_on(exec.run(&plan, Inputs::new()))?;
        totals.push(*total.lock().unwrap());
        Ok(())
    });
    assert_eq!(explored.unwrap().orders, 6);
    assert_eq!((totals.iter().filter(|&&total| total == 2).count(), totals.iter().filter(|&&total| total == 1).count()), (2, 4));
}

#[test]
fn injected_faults_stop_what_depends_on_them() {
    // Seen to fail with faults that are only checked in tasks, and without faults.
    let mut g = Graph::new();
    let a = g.future("a", (), async || Ok(1));
    let b = g.task("b", (), || 2);
    let sum = g.task("sum", (&a, &b), |a: &i32, b: &i32| a + b);
    g.output("sum", &sum);
    let plan = plan(&g);
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        let node = plan.schedule().shape().ids().nth(index).unwrap();
        let faults = Faults::new(0).fail_node(node);
        let exec = Executor::builder().simulated(Order::InOrder, faults).build().unwrap();
        let error = block_on(exec.run(&plan, Inputs::new())).unwrap_err();
        assert_eq!((error.node(), format!("{error:#}").ends_with(": a fault was injected")), (Some(name), true), "{error:#}");
    }
    let exec = Executor::builder().simulated(Order::InOrder, Faults::new(3).fail(0.0)).build().unwrap();
    assert!(block_on(exec.run(&plan, Inputs::new())).is_ok());
}

#[test]
fn a_simulated_executor_has_no_workers() {
    assert_eq!(Executor::sim(1).workers(), 0);
    let error = Executor::builder().workers(2).simulated(Order::InOrder, Faults::default()).build().map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the number of workers of a simulated executor must be 0, not 2");
}

#[test]
fn a_failing_order_says_how_to_come_back_to_it() {
    // Seen to fail with the unchanged error.
    let fan = fan(3);
    let mut seen = 0;
    let failing = |exec: &Executor| {
        let order = order_of(exec, &fan);
        seen += 1;
        if order == [2, 0, 1] { block_on(exec.run(&fan.0, Inputs::new().with("none", 1))).map(|_| ()) } else { Ok(()) }
    };
    let error = explore(100, failing).unwrap_err();
    let text = error.to_string();
    let choices: Vec<u32> = text.split(['[', ']']).nth(1).unwrap().split(", ").map(|choice| choice.parse().unwrap()).collect();
    let told = format!("the test failed in order {}, the first being 0: replay it with Order::Replay(vec!{choices:?})", seen - 1);
    assert_eq!(text, told + "; it chose 'm2', 'm0'");
    let again = Executor::builder().simulated(Order::Replay(choices), Faults::default()).build().unwrap();
    assert_eq!(order_of(&again, &fan), [2, 0, 1]);
    assert!(format!("{error:#}").contains("the plan has no input named 'none'"), "{error:#}");
}

// Seen to fail with names of nodes only.
#[test]
fn the_error_of_an_order_names_the_operations_that_were_chosen() {
    let error = explore(100, |exec: &Executor| {
        let (engine, ran) = (Engine::new(exec)?, Arc::new(Mutex::new(Vec::new())));
        let (x, y) = (engine.var("x", 1), engine.var("y", 2));
        for (name, var) in [("grow x", &x), ("grow y", &y)] {
            let ran = ran.clone();
            engine.try_push(Op::task(name, var, var, move |value: &i32| {
                ran.lock().unwrap().push(name);
                value * 10
            }))?;
        }
        block_on(engine.idle())?;
        let order = ran.lock().unwrap().clone();
        if order == ["grow y", "grow x"] {
            block_on(exec.run(&fan(1).0, Inputs::new().with("none", 1))).map(drop)
        } else {
            Ok(())
        }
    })
    .unwrap_err();
    assert!(error.to_string().ends_with("; it chose 'grow y'"), "{error}");
}
