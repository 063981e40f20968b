//! Operations whose `take` is refused, because a reader outside keeps the value: they do not begin, and
//! change nothing.

use std::sync::Arc;

use anabranch::{DeviceStream, Engine, Error, Executor, Flow, Function, Graph, HostStream, Op, Result, Value, Var, take};

use super::{engines, idle, push, pushed};
use crate::support::{block_on, executors};

type Vars = [Var<Vec<i32>>; 4];

/// Operations that take `x` and `w`, and write `w`, `y` and `fresh`, as bodies of every kind.
const FORMS: [&str; 6] = ["task", "try_task", "future", "kernel", "kernel of the host", "joined"];

fn op<'v>(form: &str, [x, w, y, fresh]: &'v Vars) -> Op<'v> {
    let (reads, writes) = ((take(x), take(w)), (w, y, fresh));
    let work = |x: Vec<i32>, w: Vec<i32>| ([x, w].concat(), vec![7], vec![8]);
    match form {
        "try_task" => Op::try_task("step", reads, writes, move |x: Vec<i32>, w: Vec<i32>| Ok(work(x, w))),
        "future" => Op::future("step", reads, writes, move |x, w| async move { Ok(work(x, w)) }),
        "kernel" => Op::kernel("step", reads, writes, move |_: &mut DeviceStream, x: Vec<i32>, w: Vec<i32>| work(x, w)),
        "kernel of the host" => Op::kernel("step", reads, writes, move |_: &mut HostStream, x: Vec<i32>, w: Vec<i32>| work(x, w)),
        _ => Op::task("step", reads, writes, work),
    }
}

fn vars(engine: &Engine) -> Vars {
    let [x, w, y] = [("x", 1), ("w", 2), ("y", 3)].map(|(name, value)| engine.var(name, vec![value]));
    [x, w, y, engine.empty_var("fresh")]
}

/// Engines of every kind, and one with a device that queues work.
fn all_engines() -> Vec<(Executor, Engine)> {
    #[cfg(all(unix, feature = "cuda"))]
    let gpus = vec![super::on(crate::cuda::Gpu::new().executor(2))];
    #[cfg(not(all(unix, feature = "cuda")))]
    let gpus = Vec::new();
    engines().into_iter().chain(gpus).collect()
}

fn values(vars: &Vars) -> Vec<Result<Vec<i32>, String>> {
    vars.iter().map(|var| block_on(var.read()).map(|value| value.to_vec()).map_err(|error| error.to_string())).collect()
}

const SAID: &str = "operation 'step' did not begin, and its variables are unchanged: a reader outside of the engine still holds the value of 'w', which the operation takes; drop that value first, or read the variable by reference";

/// Failed at first: `w` was poisoned, and `x` lost. Seen to fail with a `check` that checks nothing, with one
/// that checks only the first argument, and when a variable that was never written is left so.
#[test]
fn an_operation_whose_take_is_refused_leaves_its_variables_as_they_were() {
    for (exec, engine) in all_engines() {
        for form in FORMS {
            let vars = vars(&engine);
            let kept = block_on(vars[1].read()).unwrap();
            let op = || if form == "joined" { Op::join("all", [op(form, &vars)]) } else { op(form, &vars) };
            let error = block_on(pushed(&engine, op())).unwrap_err();
            assert_eq!((error.node(), &error.to_string()[..]), (Some("step"), SAID), "{exec:?}, {form}");
            assert_eq!(values(&vars), [Ok(vec![1]), Ok(vec![2]), Ok(vec![3]), Err(SAID.to_owned())], "{exec:?}, {form}");
            assert_eq!(vars.each_ref().map(Var::version), [0, 0, 0, 1], "{exec:?}, {form}");
            drop(kept);
            block_on(pushed(&engine, op())).unwrap();
            let all = values(&vars);
            assert_eq!(all[1..], [Ok(vec![1, 2]), Ok(vec![7]), Ok(vec![8])], "{exec:?}, {form}");
            assert!(all[0].as_ref().is_err_and(|said| said.contains("has no value")));
            idle(&engine).unwrap();
        }
    }
}

/// Failed at first on a device, where the value is fetched when the kernel is enqueued: `w` was poisoned.
#[test]
fn an_only_take_that_is_refused_leaves_its_variable_as_it_was() {
    let ops: [fn(&Var<Vec<i32>>) -> Op<'_>; 4] = [
        |w| Op::task("step", take(w), w, |w: Vec<i32>| [w, vec![9]].concat()),
        |w| Op::future("step", take(w), w, |w: Vec<i32>| async move { Ok([w, vec![9]].concat()) }),
        |w| Op::kernel("step", take(w), w, |_: &mut DeviceStream, w: Vec<i32>| [w, vec![9]].concat()),
        |w| Op::kernel("step", take(w), w, |_: &mut HostStream, w: Vec<i32>| [w, vec![9]].concat()),
    ];
    for (exec, engine) in all_engines() {
        for (form, op) in ops.iter().enumerate() {
            let w = engine.var("w", vec![2]);
            let kept = block_on(w.read()).unwrap();
            assert_eq!(block_on(pushed(&engine, op(&w))).unwrap_err().to_string(), SAID, "{exec:?}, {form}");
            assert_eq!(*block_on(w.read()).unwrap(), [2], "{exec:?}, {form}");
            drop(kept);
            block_on(pushed(&engine, op(&w))).unwrap();
            assert_eq!(*block_on(w.read()).unwrap(), [2, 9], "{exec:?}, {form}");
        }
    }
}

/// Seen to fail (the error was not reported) when such an error is not reported at last.
#[test]
fn a_refused_take_is_told_by_idle_if_nobody_looks_at_the_handle() {
    for (exec, engine) in all_engines() {
        for form in FORMS {
            let [x, w, y, fresh] = vars(&engine);
            let kept = block_on(w.read()).unwrap();
            push(&engine, op(form, &[x.clone(), w.clone(), y.clone(), y.clone()]));
            drop(fresh);
            let told = idle(&engine).map_err(|error| error.to_string());
            assert_eq!(told, Err(SAID.to_owned()), "{exec:?}, {form}");
            idle(&engine).unwrap();
            drop(kept);
            assert_eq!(*block_on(w.read()).unwrap(), [2]);
        }
    }
}

fn is_refused(error: &Error) -> bool {
    error.to_string().contains("did not begin")
}

#[test]
fn a_flow_goes_on_with_the_value_that_it_could_not_take() {
    let eat = Function::new("eat", |g: &mut Graph, x: Value<Vec<i32>>| g.task("in", take(&x), |x: Vec<i32>| x));
    let eat = eat.unwrap();
    let eat_there = Function::new("eat there", |g: &mut Graph, x: Value<Vec<i32>>| {
        g.kernel("in", take(&x), |_: &mut DeviceStream, x: Vec<i32>| x)
    });
    let eat_there = eat_there.unwrap();
    for (exec, _) in all_engines() {
        let flow = exec.flow(async |f: &Flow| {
            let x = f.value("x", vec![1]);
            let kept = f.get(&x).await?;
            let made = [
                f.task("eats", take(&x), |x: Vec<i32>| x),
                f.future("eats", take(&x), |x: Vec<i32>| async move { Ok(x) }),
                f.call(&eat, take(&x)),
                f.call(&eat_there, take(&x)),
            ];
            for made in &made {
                assert!(is_refused(&f.get(made).await.unwrap_err()));
            }
            // The error of a new variable that is not read does not end the flow: the variable has no old
            // value.
            drop(f.task("eats", take(&x), |x: Vec<i32>| x));
            drop((f.get(&x).await?, kept));
            f.get(&f.call(&eat, take(&x))).await
        });
        assert_eq!(*block_on(flow).unwrap(), [1], "{exec:?}");
    }
}

/// Seen to fail (it succeeds, with the value before the step) when the error is reported nowhere.
#[test]
fn a_flow_that_drops_the_handle_of_a_refused_operation_ends() {
    for exec in executors() {
        let flow = exec.flow(async |f: &Flow| {
            let w = f.value("w", 1);
            let _kept: Arc<i32> = f.get(&w).await?;
            drop(f.node(Op::task("step", take(&w), &w, |w: i32| w + 1)));
            f.get(&w).await.map(|w| *w)
        });
        assert!(is_refused(&block_on(flow).unwrap_err()), "{exec:?}");
    }
}
