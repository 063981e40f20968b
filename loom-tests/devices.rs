//! Runs on a device that queues work: the real executor with its worker and its reactor, and a device that
//! finishes work at once, or when the model says so. The reactor follows targets beside the worker, and both
//! count the same gates down.

use std::any::Any;
use std::sync::Arc;

use futures::{StreamExt, stream};

use super::harness::{block_on, check, check_within, join, spawn};
use super::runs::{Alive, check_values, poll_once};
use crate::device::queue::{Arg, Event, Fault, HostMemory, Job, Memory, Part, Queue, QueueDevice, Submitted, Timeline};
use crate::device::{DeviceStream, Launch};
use crate::engine::Pushed;
use crate::engine::order::Ending;
use crate::error::{Error, Result};
use crate::pipe::Phases;
use crate::policy::PerOperator;
use crate::sync::{AtomicU64, Ordering, spin_loop};
use crate::{Engine, Executor, Graph, Inputs, Op, Pipeline, Plan, Ranked};

/// A device of one lane.
struct Device {
    lane: Arc<Word>,
    issued: AtomicU64,
    is_prompt: bool,
}

/// The last point that the lane has passed.
struct Word(AtomicU64);

impl Timeline for Word {
    fn reached(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release of the store that moves the lane.
        self.0.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A stream that records nothing: no kernel of a model enqueues work.
struct Nothing;

impl Queue for Nothing {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn device_name(&self) -> String {
        "a model's device".into()
    }

    fn begin_part(&mut self, _: Part<'_>) {}
    fn abandon_part(&mut self) {}
    fn abandon_all(&mut self) {}

    fn alloc(&mut self, _: usize) -> Result<Box<dyn Memory>> {
        unreachable!("no kernel asks")
    }

    fn upload(&mut self, _: &[u8], _: &dyn Memory) -> Result<()> {
        unreachable!("no kernel asks")
    }

    fn download(&mut self, _: &dyn Memory) -> Result<Box<dyn HostMemory>> {
        unreachable!("no kernel asks")
    }

    fn fetch(&mut self, _: &dyn Memory) -> Result<Box<dyn Memory>> {
        unreachable!("no kernel asks")
    }

    fn copy(&mut self, _: &dyn Memory, _: &dyn Memory) -> Result<()> {
        unreachable!("no kernel asks")
    }

    fn fill(&mut self, _: &[u8], _: &dyn Memory) -> Result<()> {
        unreachable!("no kernel asks")
    }

    fn launch(&mut self, _: &Arc<crate::device::code::Code>, _: &Launch, _: &[Arg<'_>]) -> Result<()> {
        unreachable!("no kernel asks")
    }
}

impl QueueDevice for Device {
    fn name(&self) -> String {
        "a model's device".into()
    }

    fn timelines(&self) -> Vec<Arc<dyn Timeline>> {
        vec![self.lane.clone()]
    }

    fn begin(&self, _: u32, _: &mut dyn Iterator<Item = Event>) -> Result<DeviceStream> {
        Ok(DeviceStream::queue(Box::new(Nothing)))
    }

    fn submit(&self, _: DeviceStream, job: &mut Job<'_>) -> Result<Submitted> {
        // ORDERING: Relaxed: the numbers only have to differ. The Release of the lane's word pairs with the
        // Acquire in `reached`.
        let point = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_prompt {
            self.lane.0.store(point, Ordering::Release);
        }
        Ok(Submitted { point, event: job.is_recorded.then_some(Event(1)), is_graph: false, times: None })
    }

    fn backlog(&self, _: u32) -> Option<u64> {
        None
    }

    fn mark(&self, _: u32) -> Result<u64> {
        // ORDERING: Relaxed: a number that guards no other data.
        Ok(self.issued.load(Ordering::Relaxed))
    }

    fn free_events(&self, _: &mut dyn Iterator<Item = Event>) {}

    fn collect(&self) -> Option<(u32, u64)> {
        None
    }

    fn quarantined(&self) -> usize {
        0
    }

    fn judge(&self, _: &Fault) -> Error {
        unreachable!("no fault is reported")
    }
}

/// Returns an executor, and its device's lane.
fn executor(is_prompt: bool) -> (Executor, Arc<Word>) {
    let lane = Arc::new(Word(AtomicU64::new(0)));
    let device = Device { lane: lane.clone(), issued: AtomicU64::new(0), is_prompt };
    let exec = Executor::builder().workers(1).max_in_flight(1).device(Arc::new(device)).build();
    (exec.expect("the settings are in range"), lane)
}

/// A host node that reads a kernel and another host node: the reactor and the worker arrive at its gate.
fn joined() -> Plan {
    let mut g = Graph::new();
    let kernel = g.kernel("kernel", (), |_: &mut DeviceStream| 20);
    let task = g.task("task", (), || 22);
    let both = g.task("both", (&kernel, &task), |a: &i32, b: &i32| a + b);
    g.output("both", &both);
    g.compile_with(&PerOperator).expect("the graph is right")
}

// Seen to fail with a pool that treats its only worker as the only thread that counts (an arrival is lost).
#[test]
fn a_worker_and_the_reactor_arrive_at_one_gate() {
    let plan = joined();
    check_within(2, move || {
        let mut outputs = block_on(executor(true).0.run(&plan, Inputs::new())).expect("nothing goes wrong");
        assert_eq!(*outputs.take::<i32>("both").expect("it is an output"), 42);
    });
}

/// A kernel whose value is counted.
fn one_kernel(alive: &Alive) -> Plan {
    let (mut g, alive) = (Graph::new(), alive.clone());
    let kernel = g.kernel("kernel", (), move |_: &mut DeviceStream| alive.value());
    g.output("kernel", &kernel);
    g.compile_with(&PerOperator).expect("the graph is right")
}

// Seen to fail with a `land` that does not collect dropped memory (the values stay).
#[test]
fn a_run_that_is_dropped_while_its_device_is_at_it_frees_its_values_afterwards() {
    check_values(1, one_kernel, |plan, alive| {
        let (exec, lane) = executor(false);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        drop(run);
        // ORDERING: Release pairs with the Acquire in `reached`.
        lane.0.store(1, Ordering::Release);
        while alive.count() > 0 {
            spin_loop();
        }
    });
}

/// Two phases of kernels. The second phase reads the first, and has a state.
fn two_phases(in_flight: u32) -> Pipeline<i32, i32> {
    let pipeline = Pipeline::new("kernels", &Ranked::default(), |g, item| {
        let mut total = g.state("total", || 0);
        let first = g.kernel("first", &item, |_: &mut DeviceStream, x: &i32| x + 1);
        g.kernel("second", (&mut total, &first), |_: &mut DeviceStream, total: &mut i32, x: &i32| {
            *total += x;
            *total
        })
    });
    let phased = pipeline.and_then(|pipeline| pipeline.phases(Phases::Each));
    phased.and_then(|pipeline| pipeline.in_flight(in_flight)).expect("the pipeline is right")
}

// The worker queues the kernels of the second item while the reactor ends the first. Seen to fail (a word
// that was freed) with a segment that is awaited before the edges of its submission are followed.
#[test]
fn kernels_are_queued_behind_an_item_that_ends_meanwhile() {
    for in_flight in [1, 2] {
        let pipeline = two_phases(in_flight);
        check_within(1, move || {
            let (exec, _) = executor(true);
            let results: Vec<_> = block_on(exec.pipe(&pipeline, stream::iter([1, 2])).collect());
            assert_eq!(results.into_iter().map(|result| result.expect("nothing goes wrong")).collect::<Vec<_>>(), [2, 5]);
        });
    }
}

/// An engine on a device, and that device's lane.
fn engine(is_prompt: bool) -> (Executor, Engine, Arc<Word>) {
    let (exec, lane) = executor(is_prompt);
    let engine = Engine::builder(&exec).max_pending(8).build().expect("there is room");
    (exec, engine, lane)
}

fn push(engine: &Engine, op: Op<'_>) -> Pushed {
    engine.try_push(op).map_err(Error::from).expect("there is room")
}

// Seen to fail (no thread continues the operation) with an end that empties the list of waiting operations,
// and then marks itself as over; and with a check of the end before the list's lock is taken.
#[test]
fn who_comes_to_wait_for_an_end_is_in_its_list_or_finds_it_over() {
    check(|| {
        let (ending, turns) = (Arc::new(Ending::new()), Arc::new(AtomicU64::new(0)));
        let (there, counted) = (ending.clone(), turns.clone());
        let other = spawn(move || {
            let waiting = there.end();
            // ORDERING: Relaxed: a count of the model. The join publishes it.
            counted.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        });
        if ending.wake_later(7).is_some() {
            turns.fetch_add(1, Ordering::Relaxed);
        }
        join(other);
        assert_eq!(turns.load(Ordering::Relaxed), 1, "it goes on, once");
    });
}

// The same with a whole engine. Seen to fail (a deadlock) with an end that makes no waiting operation ready,
// and with one that does not notify its handle.
#[test]
fn an_operation_of_the_host_is_put_aside_until_a_device_is_done_with_what_it_reads() {
    check_within(0, || {
        let (_exec, engine, _lane) = engine(true);
        let x = engine.empty_var::<i32>("x");
        let kernel = push(&engine, Op::kernel("kernel", (), &x, |_: &mut DeviceStream| 20));
        let task = push(&engine, Op::task("task", &x, &x, |x: &i32| x + 22));
        block_on(task).expect("nothing goes wrong");
        block_on(kernel).expect("nothing goes wrong");
        assert_eq!(x.version(), 2);
    });
}

// Seen to fail with a handle that is notified of the end when its kernel is submitted, and with one that is
// never notified (a deadlock).
#[test]
fn a_kernels_handle_hears_of_its_end_when_the_device_says_so() {
    check_within(1, || {
        let (_exec, engine, lane) = engine(false);
        let x = engine.empty_var::<i32>("x");
        let mut kernel = push(&engine, Op::kernel("kernel", (), &x, |_: &mut DeviceStream| 20));
        assert!(!poll_once(&mut kernel));
        // ORDERING: Release pairs with the Acquire in `reached`.
        lane.0.store(1, Ordering::Release);
        block_on(kernel).expect("nothing goes wrong");
    });
}
