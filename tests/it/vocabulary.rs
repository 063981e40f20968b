//! Nodes, operations and calls take the same reads, and give closures the same arguments.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch::graph::Each;
use anabranch::{Engine, Executor, Flow, Function, Graph, Inputs, Name, Op, Result, Value, inputs, take};

use crate::support::block_on;

fn mixed(a: &u64, b: Vec<u64>, rest: Each<u64>) -> u64 {
    a + b[0] + rest.iter().rev().fold(0, |sum, x| 10 * sum + x) + rest[1] + rest.len() as u64
}

async fn mixed_async(a: Arc<u64>, b: Vec<u64>, rest: Vec<Arc<u64>>) -> Result<u64, anabranch::BoxError> {
    Ok(*a + b[0] + rest.iter().rev().fold(0, |sum, x| 10 * sum + **x) + *rest[1] + rest.len() as u64)
}

const MIXED: u64 = 1000 + 100 + 21 + 2 + 2;

#[test]
fn a_node_and_an_operation_run_the_same_function() {
    let mut g = Graph::new();
    let (a, b) = (g.input::<u64>("a"), g.task("b", (), || vec![100_u64]));
    let again = g.task("b again", (), || vec![100_u64]);
    let rest = [1, 2].map(|x| g.task(format!("rest {x}"), (), move || x));
    let one = g.task("mixed", (&a, take(&b), &rest[..]), mixed);
    let other = g.future("mixed, async", (&a, take(&again), &rest[..]), mixed_async);
    g.output("one", &one);
    g.output("other", &other);
    let mut outputs = block_on(Executor::inline().run(&g.compile().unwrap(), inputs! { "a" => 1000_u64 }));
    let outputs = outputs.as_mut().unwrap();
    assert_eq!((*outputs.take::<u64>("one").unwrap(), *outputs.take::<u64>("other").unwrap()), (MIXED, MIXED));

    let engine = Engine::new(&Executor::inline()).unwrap();
    let (a, b, rest) = (engine.var("a", 1000_u64), engine.var("b", vec![100_u64]), [engine.var("1", 1), engine.var("2", 2)]);
    let (one, other) = (engine.empty_var("one"), engine.empty_var("other"));
    let result: Result<()> = block_on(async {
        engine.push(Op::task("mixed", (&a, take(&b), &rest[..]), &one, mixed)).await?.await?;
        engine.push(Op::task("b again", (), &b, || vec![100])).await?.await?;
        engine.push(Op::future("mixed, async", (&a, take(&b), &rest[..]), &other, mixed_async)).await?.await?;
        assert_eq!((*one.read().await?, *other.read().await?), (MIXED, MIXED));
        Ok(())
    });
    result.unwrap();
}

/// Seen to fail to compile when writes, arguments and results of calls were limited to six.
#[test]
fn nodes_operations_and_calls_take_eight() {
    #[rustfmt::skip]
    #[allow(clippy::too_many_arguments)]
    fn next(a: &u64, b: &u64, c: &u64, d: &u64, e: &u64, f: &u64, g: &u64, h: &u64) -> (u64, u64, u64, u64, u64, u64, u64, u64) {
        (*b, *c, *d, *e, *f, *g, *h, a + 1)
    }
    let exec = Executor::inline();
    let engine = Engine::new(&exec).unwrap();
    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| engine.var("x", n));
    let all = (&a, &b, &c, &d, &e, &f, &g, &h);
    block_on(async { engine.push(Op::task("next", all, all, next)).await?.await }).unwrap();
    assert_eq!([a, b, c, d, e, f, g, h].map(|x| *block_on(x.read()).unwrap()), [1, 2, 3, 4, 5, 6, 7, 1]);

    type Eight = (Value<u64>, Value<u64>, Value<u64>, Value<u64>, Value<u64>, Value<u64>, Value<u64>, Value<u64>);
    let swap = Function::new("swap", |graph: &mut Graph, (a, b, c, d, e, f, g, h): Eight| {
        let sum = graph.task(
            "sum",
            (&a, &b, &c, &d, &e, &f, &g, &h),
            |a: &u64, b: &u64, c: &u64, d: &u64, e: &u64, f: &u64, g: &u64, h: &u64| a + b + c + d + e + f + g + h,
        );
        (sum, b, c, d, e, f, g, h)
    });
    let swap = swap.unwrap();
    let called = exec.flow(async |flow: &Flow| {
        let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| flow.value("x", n));
        let (a, .., h) = flow.call(&swap, (&a, &b, &c, &d, &e, &f, &g, take(&h)));
        Ok((*flow.get(&a).await?, *flow.get(&h).await?))
    });
    assert_eq!(block_on(called).unwrap(), (28, 7));
}

#[test]
fn all_names_are_made_of_the_same() {
    let (made, name) = ("made".to_owned(), Name::from("name"));
    let exec = Executor::inline();
    let engine = Engine::new(&exec).unwrap();
    let mut g = Graph::new();
    let x = g.input::<u64>(&made);
    let y = g.task(&made, &x, |x: &u64| x + 1);
    let z = g.task(Cow::from("z"), &y, |y: &u64| y + 1);
    g.node(&z).command(&name);
    g.output(&name, &z);
    let plan = g.compile().unwrap();
    assert_eq!(*block_on(exec.run(&plan, Inputs::new().with(&made, 5_u64))).unwrap().take::<u64>(&name).unwrap(), 7);
    let x = engine.var(&made, 5);
    block_on(async { engine.push(Op::task(&name, &x, &x, |x: &u64| x + 1)).await?.await }).unwrap();
    let function = Function::new(&made, |_: &mut Graph, x: Value<u64>| x).unwrap();
    assert_eq!((x.name(), function.name(), &*name), ("made", "made", "name"));
}
