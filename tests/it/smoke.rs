//! The first path through the library: every kind of node, every executor.

use anabranch::policy::PerOperator;
use anabranch::*;
use futures::executor::block_on;
use std::sync::Arc;

fn graph() -> Graph {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let a = g.task("a", &x, |x: &u64| x + 1);
    let b = g.future("b", &a, async |a: Arc<u64>| {
        tokio::task::yield_now().await;
        Ok(*a * 2)
    });
    let c = g.kernel("c", &a, |s: &mut HostStream, a: &u64| s.launch(|| a * 3));
    let d = g.task("d", (&b, take(&c)), |b: &u64, c: u64| format!("{b} {c}"));
    g.output("d", &d);
    g
}

#[test]
fn smoke() {
    let plan = graph().compile_with(&PerOperator).unwrap();
    println!("{plan}");
    for workers in [0, 1, 2, 4] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        for _ in 0..2000 {
            let mut out = block_on(exec.run(&plan, inputs! { "x" => 1u64 })).unwrap();
            assert_eq!(*out.take::<String>("d").unwrap(), "4 6");
        }
        block_on(exec.shutdown()).unwrap();
    }
}

#[test]
fn lattice() {
    let mut g = Graph::new();
    let n = 50;
    let mut v: Vec<Value<u64>> = vec![];
    for i in 0..n {
        for j in 0..n {
            let name = format!("{i},{j}");
            let val = match (i, j) {
                (0, 0) => g.task(name, (), || 1u64),
                (0, j) => g.task(name, &v[j - 1], |a: &u64| *a),
                (i, 0) => g.task(name, &v[(i - 1) * n], |a: &u64| *a),
                (i, j) => g.task(name, (&v[(i - 1) * n + j], &v[i * n + j - 1]), |a: &u64, b: &u64| a.wrapping_add(*b)),
            };
            v.push(val);
        }
    }
    g.output("x", &v[n * n - 1]);
    let plan = g.compile_with(&PerOperator).unwrap();
    let mut first = None;
    for workers in [0, 1, 2, 4] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        for _ in 0..500 {
            let run = exec.run(&plan, Inputs::new());
            let node = run.node("25,25");
            let (r, n) = block_on(futures::future::join(run, node));
            n.unwrap();
            let x = r.unwrap().take::<u64>("x").unwrap();
            assert_eq!(*first.get_or_insert(*x), *x);
        }
        block_on(exec.shutdown()).unwrap();
    }
}
