//! Operations on the simulated device: every order that is possible with threads, one after the other.

use std::collections::BTreeSet;

use anabranch::sim::{Faults, Order};
use anabranch::{Engine, Executor, Op, explore};

use super::{idle, push};
use crate::support::{Dice, block_on};

/// `x` and `y` are written in sequence, read, and mixed. The result does not depend on the order.
fn mixed(exec: &Executor) -> anabranch::Result<(i32, i32, i32)> {
    let engine = Engine::new(exec)?;
    let [x, y, z] = ["x", "y", "z"].map(|name| engine.var(name, 1));
    push(&engine, Op::task("grow x", &x, &x, |x: &i32| x + 1));
    push(&engine, Op::task("grow y", &y, &y, |y: &i32| y * 10));
    push(&engine, Op::task("mix", (&x, &y), &z, |x: &i32, y: &i32| x * y));
    push(&engine, Op::task("look x", &x, (), |x: &i32| assert_eq!(*x, 2)));
    push(&engine, Op::task("look y", &y, (), |y: &i32| assert_eq!(*y, 10)));
    push(&engine, Op::task("swap", (&x, &y), (&y, &x), |x: &i32, y: &i32| (*x, *y)));
    push(&engine, Op::task("last", (&z, &x), &z, |z: &i32, x: &i32| z + x));
    let values = [&x, &y, &z].map(|var| block_on(var.read()).map(|value| *value));
    idle(&engine)?;
    let [x, y, z] = values;
    Ok((x?, y?, z?))
}

#[test]
fn every_order_gives_the_same() {
    // Seen to fail with a reader that is admitted beside a writer.
    let mut seen = BTreeSet::new();
    let explored = explore(100_000, |exec| {
        seen.insert(mixed(exec)?);
        Ok(())
    });
    let explored = explored.unwrap();
    assert!(explored.is_complete && explored.orders > 10, "{explored:?}");
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(10, 2, 30)]);
}

#[test]
fn orders_differ_and_the_same_seed_gives_the_same() {
    let order = |seed| {
        let exec = Executor::sim(seed);
        let engine = Engine::new(&exec).unwrap();
        let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        for number in 0..10 {
            let log = log.clone();
            push(&engine, Op::task("note", (), (), move || log.lock().unwrap().push(number)));
        }
        idle(&engine).unwrap();
        log.lock().unwrap().split_off(0)
    };
    let orders: BTreeSet<Vec<i32>> = (0..20).map(order).collect();
    assert!(orders.len() > 15);
    assert_eq!(order(3), order(3));
}

/// Seen to fail (`idle` is `Ok`) with an engine that drops the error of its choice.
#[test]
fn choices_that_there_are_not_are_told_by_idle_once() {
    let exec = Executor::builder().simulated(Order::Replay(vec![0, 9, 9]), Faults::default()).build().unwrap();
    let engine = Engine::new(&exec).unwrap();
    let xs = [1, 2, 3, 4].map(|number| engine.var("x", number));
    xs.iter().for_each(|x| push(&engine, Op::task("add", x, x, |x: &i32| x + 1)));
    let error = idle(&engine).unwrap_err();
    assert!(error.to_string().starts_with("choice number 1 to replay, counted from 0, is 9, and there are 3"), "{error}");
    idle(&engine).unwrap();
    assert_eq!(xs.map(|x| *block_on(x.read()).unwrap()), [2, 3, 4, 5]);
}

#[test]
fn random_operations_end_as_one_after_the_other_on_a_hundred_seeds() {
    for seed in 0..100 {
        let (mut dice, exec) = (Dice::new(seed), Executor::sim(seed));
        let engine = Engine::new(&exec).unwrap();
        let vars: Vec<_> = (0..5).map(|number| engine.var("v", number)).collect();
        let mut wanted: Vec<u64> = (0..5).collect();
        for step in 0..50 {
            let [a, b, to] = [(); 3].map(|()| dice.below(5));
            let mix = move |a: u64, b: u64| a.wrapping_mul(31).wrapping_add(b) ^ step;
            push(&engine, Op::task("mix", (&vars[a], &vars[b]), &vars[to], move |a: &u64, b: &u64| mix(*a, *b)));
            wanted[to] = mix(wanted[a], wanted[b]);
        }
        let values: Vec<u64> = vars.iter().map(|var| *block_on(var.read()).unwrap()).collect();
        assert_eq!(values, wanted, "seed {seed}");
    }
}
