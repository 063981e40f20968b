//! Programs whose results are known: on every kind of executor, with many seeds, and small ones in every
//! order.

use anabranch::graph::times;
use anabranch::{Executor, Graph, Inputs, Plan, Value, explore, inputs};

use super::{many_executors, piecewise};
use crate::support::{block_on, plan, value_of};

fn result(exec: &Executor, plan: &Plan, inputs: Inputs) -> f64 {
    *value_of(block_on(exec.run(plan, inputs)), "out")
}

fn output(g: &mut Graph, value: &Value<f64>) -> Plan {
    g.output("out", value);
    let plan = plan(g);
    plan.verify().unwrap();
    plan
}

#[test]
fn five_times_a_factor_and_then_another() {
    let mut g = Graph::new();
    let z = g.task("one", (), || 1.0);
    let z = g.repeat("grow", &z, times(5), |b, z| b.task("mul", &z, |z: &f64| z * 1.11));
    let z = g.task("shrink", &z, |z: &f64| z * 0.34);
    let plan = output(&mut g, &z);
    let unrolled = (0..5).fold(1.0, |z, _| z * 1.11) * 0.34;
    // The published figure was rounded elsewhere.
    assert!((unrolled - 0.5729197727340003f64).abs() < 1e-15);
    for exec in many_executors() {
        assert_eq!(result(&exec, &plan, Inputs::new()), unrolled, "{exec:?}");
    }
}

/// `z0` is the loop's first state, and is read again after the loop.
fn power() -> Plan {
    let mut g = Graph::new();
    let [x, y, z0] = ["x", "y", "z0"].map(|name| g.input::<f64>(name));
    let z = g.repeat("power", &z0, times(5), |b, z| b.task("mul", (&z, &x), |z: &f64, x: &f64| z * x));
    let out = g.task("end", (&z, &y, &z0), |z: &f64, y: &f64, z0: &f64| z * y + z0);
    output(&mut g, &out)
}

fn unrolled_power() -> f64 {
    (0..5).fold(1.2, |z, _| z * 0.92) * 3.2 + 1.2
}

#[test]
fn a_value_outside_of_a_loop_keeps_its_first_value() {
    // Seen to fail with a loop that moves its first state out of the outer graph's cell.
    let plan = power();
    assert!((unrolled_power() - 3.730873049088).abs() < 1e-14);
    for exec in many_executors() {
        assert_eq!(result(&exec, &plan, inputs! { "x" => 0.92, "y" => 3.2, "z0" => 1.2 }), unrolled_power(), "{exec:?}");
    }
}

/// `(x0, x1) ← (x1, x0 + f(x1))`, with a condition of nodes.
fn carried(iterations: u32) -> Plan {
    let mut g = Graph::new();
    let (x0, x1, n) = (g.task("x0", (), || 0.3), g.task("x1", (), || 0.7), g.task("n", (), || 0u32));
    let (x0, x1, _) = g.repeat(
        "carry",
        (&x0, &x1, &n),
        |c, (_, _, n)| c.task("more", &n, move |n: &u32| *n < iterations),
        |b, (x0, x1, n)| {
            let f = b.task("f", &x1, |x: &f64| x.sin());
            let next = b.task("next", (&x0, &f), |x: &f64, f: &f64| x + f);
            (x1, next, b.task("count", &n, |n: &u32| n + 1))
        },
    );
    let out = g.task("sum", (&x0, &x1), |a: &f64, b: &f64| a * 1000.0 + b);
    output(&mut g, &out)
}

fn unrolled_carry(iterations: u32) -> f64 {
    let (mut x0, mut x1) = (0.3f64, 0.7f64);
    for _ in 0..iterations {
        (x0, x1) = (x1, x0 + x1.sin());
    }
    x0 * 1000.0 + x1
}

#[test]
fn states_are_carried_all_at_once() {
    for iterations in [0, 1, 5] {
        let plan = carried(iterations);
        for exec in many_executors() {
            assert_eq!(result(&exec, &plan, Inputs::new()), unrolled_carry(iterations), "{exec:?}");
        }
    }
}

#[test]
fn states_change_places() {
    // Seen to fail with moves that do not wait in between.
    let mut g = Graph::new();
    let [a, b, c] = [1.0, 2.0, 3.0].map(|x| g.task(format!("x{x}"), (), move || x));
    let (a, b, c) = g.repeat("turn", (&a, &b, &c), times(4), |_, (a, b, c)| (c, a, b));
    let out = g.task("out", (&a, &b, &c), |a: &f64, b: &f64, c: &f64| a * 100.0 + b * 10.0 + c);
    let plan = output(&mut g, &out);
    for exec in many_executors() {
        assert_eq!(result(&exec, &plan, Inputs::new()), 312.0, "{exec:?}");
    }
}

#[test]
fn a_branch_takes_an_arm_or_lets_its_input_through() {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let y = piecewise(&mut g, "piece", &x);
    let plan = output(&mut g, &y);
    for exec in many_executors() {
        for (x, y) in [(-1.0, 0.0), (0.76, 0.76), (1.226, 1.113), (2.1, 1.5)] {
            assert_eq!(result(&exec, &plan, inputs! { "x" => x }), y, "{exec:?}");
        }
    }
}

fn piecewise_four_times() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let x = g.repeat("four", &x, times(4), |b, x| piecewise(b, "piece", &x));
    let out = g.task("scale", &x, |x: &f64| 0.3 * x);
    output(&mut g, &out)
}

#[test]
fn a_loop_of_branches_runs_again_and_again_on_one_plan() {
    let plan = piecewise_four_times();
    for exec in many_executors() {
        for (x, y) in [(1.226, 0.3042375), (0.8, 0.24), (1.226, 0.3042375)] {
            assert_eq!(result(&exec, &plan, inputs! { "x" => x }), y, "{exec:?}");
        }
    }
}

fn nested(iterations: u64) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let x = g.repeat("outer", &x, times(iterations), |b, x| {
        let y = b.repeat("inner", &x, times(iterations), |b, y| b.task("f", &y, |y: &f64| y.cos()));
        b.task("add", (&x, &y), |x: &f64, y: &f64| x + y)
    });
    output(&mut g, &x)
}

fn unrolled_nested(iterations: u64, mut x: f64) -> f64 {
    for _ in 0..iterations {
        x += (0..iterations).fold(x, |y, _| y.cos());
    }
    x
}

#[test]
fn a_loop_in_a_loop_is_the_unrolled_program() {
    let plan = nested(5);
    for exec in many_executors() {
        assert_eq!(result(&exec, &plan, inputs! { "x" => 0.4 }), unrolled_nested(5, 0.4), "{exec:?}");
    }
}

#[test]
fn known_results_come_out_in_every_order() {
    // Seen to fail with gates that are not reset.
    let explored = |plan: &Plan, inputs: fn() -> Inputs, expected: f64| {
        let explored = explore(20_000, |exec| {
            assert_eq!(result(exec, plan, inputs()), expected);
            Ok(())
        });
        assert!(explored.unwrap().is_complete);
    };
    explored(&power(), || inputs! { "x" => 0.92, "y" => 3.2, "z0" => 1.2 }, unrolled_power());
    explored(&carried(2), Inputs::new, unrolled_carry(2));
    explored(&piecewise_four_times(), || inputs! { "x" => 1.226 }, 0.3042375);
    explored(&nested(2), || inputs! { "x" => 0.4 }, unrolled_nested(2, 0.4));
}
