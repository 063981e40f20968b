//! Plans and functions as services of the crate `tower`.

use std::time::{Duration, Instant};

use anabranch::{Error, Executor, Function, Graph, Value};
use tower::{Service, ServiceBuilder, ServiceExt};

use super::{letter, one_at_a_time, waiting};
use crate::support::{block_on, executors, poll_once};

fn divide() -> Function<(Value<u64>, Value<u64>), (Value<u64>, Value<u64>)> {
    Function::new("divide", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
        let quotient = g.try_task("quotient", (&a, &b), |a: &u64, b: &u64| a.checked_div(*b).ok_or("by zero".into()));
        let rest = g.task("rest", (&a, &b, &quotient), |a: &u64, b: &u64, q: &u64| a - b * q);
        (quotient, rest)
    })
    .unwrap()
}

#[test]
fn a_request_of_a_plan_is_a_run() {
    for exec in executors() {
        let mut service = exec.service(&waiting());
        let (sender, inputs) = letter();
        sender.send(4).unwrap();
        let mut outputs = block_on(async { service.ready().await?.call(inputs).await }).unwrap();
        assert_eq!(*outputs.take::<u32>("word").unwrap(), 4);
    }
}

#[test]
fn a_request_of_a_function_has_its_arguments_and_its_response_the_results() {
    for exec in executors() {
        let service = ServiceBuilder::new().concurrency_limit(2).service(exec.service(&divide()));
        let (quotient, rest) = block_on(service.clone().oneshot((17, 5))).unwrap();
        assert_eq!((*quotient, *rest), (3, 2));
        let error = block_on(service.oneshot((17, 0))).unwrap_err();
        assert_eq!(error.node(), Some("quotient"));
    }
}

#[test]
fn a_request_that_waits_is_admitted_by_priority() {
    // Seen to fail with a service that sets no priority.
    for exec in one_at_a_time() {
        let plan = waiting();
        let (mut low, mut high) = (exec.service(&plan), exec.service(&plan).priority(1));
        let ((first_sender, first), (_second_sender, second), (third_sender, third)) = (letter(), letter(), letter());
        let mut first = low.call(first);
        assert!(poll_once(&mut first).is_pending());
        let (mut second, mut third) = (low.call(second), high.call(third));
        assert!(poll_once(&mut second).is_pending() && poll_once(&mut third).is_pending());
        first_sender.send(1).unwrap();
        third_sender.send(3).unwrap();
        block_on(first).unwrap();
        block_on(third).unwrap();
    }
}

#[test]
fn a_service_that_sheds_refuses_what_finds_no_room() {
    // Seen to fail with a service that lets requests wait.
    for exec in one_at_a_time() {
        let mut service = exec.service(&waiting()).shedding();
        let ((sender, first), (_, second)) = (letter(), letter());
        let (first, second) = (service.call(first), service.call(second));
        let error = block_on(second).unwrap_err();
        assert!(error.is_busy(), "{error}");
        sender.send(1).unwrap();
        block_on(first).unwrap();
        let (sender, third) = letter();
        sender.send(3).unwrap();
        assert!(block_on(service.call(third)).is_ok());
    }
}

#[test]
fn a_request_has_so_much_time() {
    // Seen to fail (nothing woke the future) without the deadline.
    for exec in executors() {
        for service in [exec.service(&waiting()), exec.service(&waiting()).shedding()] {
            let mut service = service.timeout(Duration::from_millis(5));
            let begin = Instant::now();
            let (_sender, inputs) = letter();
            let error = block_on(service.call(inputs)).unwrap_err();
            assert!(error.is_past_deadline() && begin.elapsed() >= Duration::from_millis(5));
        }
        let (sender, inputs) = letter();
        sender.send(1).unwrap();
        assert!(block_on(exec.service(&waiting()).timeout(Duration::MAX).call(inputs)).is_ok());
    }
}

#[test]
fn a_service_is_not_ready_once_its_executor_drains() {
    for exec in executors() {
        let mut service = exec.service(&waiting());
        drop(exec.drain());
        let error: Error = block_on(service.ready()).unwrap_err();
        assert!(error.is_shut_down());
        assert!(block_on(service.call(letter().1)).unwrap_err().is_shut_down());
    }
}

#[test]
fn services_can_be_sent_to_tasks() {
    fn assert_sent<T: Clone + Send + Sync + 'static>(_: &T) {}
    assert_sent(&Executor::inline().service(&waiting()));
    assert_sent(&Executor::inline().service(&divide()));
}
