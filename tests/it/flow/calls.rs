//! Calls of functions without a flow.

use std::sync::Arc;

use anabranch::{Executor, Function, Graph, Result, Value, take};

use crate::support::{block_on, executors, poll_once};

fn divide() -> Function<(Value<u64>, Value<u64>), (Value<u64>, Value<u64>)> {
    let divide = Function::new("divide", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
        let quotient = g.task("quotient", (&a, &b), |a: &u64, b: &u64| a / b);
        (quotient, g.task("rest", (&a, &b), |a: &u64, b: &u64| a % b))
    });
    divide.unwrap()
}

/// Seen to fail if each result is taken by the name of the first.
#[test]
fn results_of_a_call_are_arguments_of_the_next() {
    for exec in executors() {
        let (quotient, rest) = block_on(exec.call(&divide(), (17, 5))).unwrap();
        assert_eq!((*quotient, *rest), (3, 2));
        let (quotient, rest) = block_on(exec.call(&divide(), (quotient, rest))).unwrap();
        assert_eq!((*quotient, *rest), (1, 1));
    }
}

#[test]
fn a_shared_argument_is_not_copied_and_a_taken_one_is_moved() {
    let same = Function::new("same", |_: &mut Graph, x: Value<Vec<u8>>| x).unwrap();
    let taken = Function::new("taken", |g: &mut Graph, x: Value<Vec<u8>>| g.task("x", take(&x), |x: Vec<u8>| x)).unwrap();
    let exec = Executor::inline();
    let given = Arc::new(vec![1]);
    assert!(Arc::ptr_eq(&block_on(exec.call(&same, given.clone())).unwrap(), &given));
    assert_eq!(*block_on(exec.call(&taken, vec![2])).unwrap(), [2]);
    let error = block_on(exec.call(&taken, given)).unwrap_err();
    assert!(error.to_string().contains("'0'"), "{error}");
}

#[test]
fn a_call_is_lazy_and_has_what_a_run_has() {
    let exec = Executor::inline();
    let call = exec.call(&divide(), (17, 0));
    assert_eq!(exec.in_flight(), 0);
    let quotient = call.node("quotient");
    let error = block_on(call).unwrap_err();
    assert_eq!((error.node(), block_on(quotient).unwrap_err().node()), (Some("quotient"), Some("quotient")));

    let never = Function::new("never", |g: &mut Graph, x: Value<u64>| {
        g.future("never", &x, async |_: Arc<u64>| std::future::pending::<Result<u64, _>>().await)
    });
    let never = never.unwrap();
    let mut call = exec.call(&never, 1);
    assert!(poll_once(&mut call).is_pending() && format!("{call:?}").contains("Call"));
    call.canceller().cancel();
    assert!(block_on(call).unwrap_err().is_cancelled());
    let call = exec.call(&never, 1);
    call.cancel();
    assert!(block_on(call).unwrap_err().is_cancelled());
}
