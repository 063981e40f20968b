//! A wait for a run, a flow or an operation inside a task of the same executor is an error. A wait in a
//! future, or elsewhere, is not.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use anabranch::exec::{Observer, WorkSpan};
use anabranch::graph::times;
use anabranch::policy::{PerOperator, Single};
use anabranch::run::{Canceller, NodeFuture};
use anabranch::{BoxError, DeviceStream, Engine, Executor, Flow, Graph, HostStream, Inputs, Op, Plan, Var, inputs, take};

use crate::support::{block_on, executor, poll_once, poll_with, value_of};

const SAID: &str = "a task or an observer waits for a run, a flow or an operation of its own executor, which may never end: wait in a future (`Graph::future`, `Op::future`, a flow) or outside, or run it on another executor";

fn one() -> Plan {
    let mut g = Graph::new();
    let one = g.task("one", (), || 1);
    g.output("one", &one);
    g.compile_with(&Single).unwrap()
}

/// A plan that never ends, however fast the other workers are.
fn never() -> Plan {
    let mut g = Graph::new();
    g.future("never", (), std::future::pending::<Result<(), BoxError>>);
    g.compile_with(&Single).unwrap()
}

/// Runs `body` as a task of the executor, and returns what it returns.
fn in_a_task<T: Send + Sync + 'static>(exec: &Executor, body: impl Fn(&Executor) -> T + Send + Sync + 'static) -> Arc<T> {
    let mut g = Graph::new();
    let own = exec.clone();
    let out = g.task("outer", (), move || body(&own));
    g.output("out", &out);
    value_of(block_on(exec.run(&g.compile_with(&Single).unwrap(), Inputs::new())), "out")
}

/// Returns the result of a wait, with its error as text.
fn told<T>(wait: impl Future<Output = anabranch::Result<T>>) -> Result<T, String> {
    smol::block_on(wait).map_err(|error| error.to_string())
}

#[test]
fn a_run_awaited_in_a_task_is_an_error() {
    // Seen to hang, with as many workers as nested waits.
    for workers in [1, 2, 8] {
        let exec = executor(workers);
        let said = in_a_task(&exec, |exec| told(exec.run(&never(), Inputs::new())).map(drop));
        assert_eq!(said.as_ref().as_ref().unwrap_err(), SAID);
        let said = in_a_task(&exec, |exec| {
            let run = exec.run(&never(), Inputs::new());
            told(run.node("never"))
        });
        assert_eq!(said.as_ref().as_ref().unwrap_err(), SAID);
        block_on(exec.run(&one(), Inputs::new())).unwrap();
    }
}

#[test]
fn a_flow_or_an_operation_awaited_in_a_task_is_an_error() {
    // Seen to hang.
    for workers in [1, 2] {
        let exec = executor(workers);
        let said = in_a_task(&exec, |exec| {
            // Until the channel is dropped, no other worker can end the task.
            let (told_so, is_told) = mpsc::channel::<()>();
            let is_told = Mutex::new(is_told);
            let one = move || is_told.lock().unwrap().recv().map_or(1, |()| 2);
            let said = told(exec.flow(async move |f: &Flow| f.get(&f.task("one", (), one)).await)).map(drop);
            drop(told_so);
            said
        });
        assert_eq!(said.as_ref().as_ref().unwrap_err(), SAID);
        let said = in_a_task(&exec, |exec| {
            let engine = Engine::new(exec).unwrap();
            told(async { engine.push(Op::task("one", (), (), || ())).await?.await })
        });
        // Another worker may have ended the operation before the wait.
        assert!(matches!(&*said, Err(text) if text == SAID) || workers == 2, "{said:?}");
        // A flow that waits for nothing ends in its poll.
        assert_eq!(*in_a_task(&exec, |exec| told(exec.flow(async |_: &Flow| Ok(3)))), Ok(3));
    }
}

#[test]
fn an_engine_awaited_in_a_task_for_idle_or_for_room_is_an_error() {
    // Seen to hang, with as many workers as nested waits.
    for workers in [1, 2] {
        let exec = executor(workers);
        let said = in_a_task(&exec, |exec| {
            let engine = Engine::new(exec).unwrap();
            told(async {
                engine.push(Op::task("one", (), (), || ())).await?;
                engine.idle().await
            })
        });
        // Another worker may have ended the operation before.
        assert!(matches!(&*said, Err(text) if text == SAID) || workers == 2, "{said:?}");
        let said = in_a_task(&exec, |exec| {
            let engine = Engine::builder(exec).max_pending(1).build().unwrap();
            told(async {
                engine.push(Op::task("one", (), (), || ())).await?;
                engine.push(Op::task("two", (), (), || ())).await.map(drop)
            })
        });
        assert!(matches!(&*said, Err(text) if text == SAID) || workers == 2, "{said:?}");
        // Nothing is pending, so `idle` does not wait.
        let is_idle = in_a_task(&exec, |exec| told(Engine::new(exec).unwrap().idle()));
        assert_eq!(*is_idle, Ok(()));
    }
}

#[test]
fn a_run_awaited_in_a_kernel_or_an_operation_is_an_error() {
    // Seen to hang.
    for workers in [1, 2] {
        let exec = executor(workers);
        let mut g = Graph::new();
        let own = exec.clone();
        let out = g.kernel("outer", (), move |_: &mut DeviceStream| told(own.run(&never(), Inputs::new())).map(drop));
        g.output("out", &out);
        let said = value_of::<Result<(), String>>(block_on(exec.run(&g.compile_with(&Single).unwrap(), Inputs::new())), "out");
        assert_eq!(said.as_ref().as_ref().unwrap_err(), SAID);
        let engine = Engine::new(&exec).unwrap();
        let (said, own) = (engine.var("said", Ok(())), exec.clone());
        let op = Op::task("outer", (), &said, move || told(own.run(&never(), Inputs::new())).map(drop));
        block_on(async { engine.push(op).await?.await }).unwrap();
        assert_eq!(block_on(said.read()).unwrap().as_ref().as_ref().unwrap_err(), SAID);
    }
}

#[test]
fn what_is_awaited_in_futures_comes() {
    // Seen to fail when every poll by a worker counts.
    for workers in [0, 1, 2] {
        let exec = executor(workers);
        let mut g = Graph::new();
        let own = exec.clone();
        let node = g.future("node", (), move || {
            let exec = own.clone();
            async move { Ok(*exec.run(&one(), Inputs::new()).await?.take::<i32>("one")?) }
        });
        g.output("node", &node);
        let plan = g.compile_with(&Single).unwrap();
        assert_eq!(*value_of::<i32>(block_on(exec.run(&plan, Inputs::new())), "node"), 1);
        let engine = Engine::new(&exec).unwrap();
        let (out, own) = (engine.var("out", 0), exec.clone());
        let op = Op::future("op", (), &out, move || async move {
            let flow = own.flow(async |f: &Flow| Ok(*f.get(&f.task("one", (), || 1)).await?)).await?;
            Ok(flow + *own.run(&one(), Inputs::new()).await?.take::<i32>("one")?)
        });
        block_on(async { engine.push(op).await?.await }).unwrap();
        assert_eq!(*block_on(out.read()).unwrap(), 2);
    }
}

#[test]
fn tasks_may_wait_for_other_executors_and_without_workers() {
    for workers in [1, 2] {
        let other = Arc::new((executor(1), Executor::inline()));
        let sum = in_a_task(&executor(workers), move |_| {
            let of = |exec: &Executor| told(exec.run(&one(), Inputs::new())).map(drop);
            of(&other.0).and(of(&other.1))
        });
        assert_eq!(*sum, Ok(()));
    }
    // Without workers the poll does the work itself.
    for exec in [Executor::inline(), Executor::sim(3)] {
        assert_eq!(*in_a_task(&exec, |exec| told(exec.run(&one(), Inputs::new())).map(drop)), Ok(()));
    }
}

// Seen to hang.
#[test]
fn a_task_that_waits_for_its_own_run_without_workers_gets_an_error() {
    for exec in [Executor::inline(), Executor::sim(3)] {
        let last: Arc<Mutex<Option<NodeFuture>>> = Arc::default();
        let (mut g, awaited) = (Graph::new(), last.clone());
        let first = g.task("first", (), move || told(awaited.lock().unwrap().take().unwrap()));
        let end = g.task("last", &first, |_: &Result<(), String>| ());
        g.output("first", &first);
        g.output("last", &end);
        let run = exec.run(&g.compile_with(&Single).unwrap(), Inputs::new());
        *last.lock().unwrap() = Some(run.node("last"));
        assert_eq!(value_of::<Result<(), String>>(block_on(run), "first").as_ref().as_ref().unwrap_err(), SAID);
    }
}

// Seen to fail with an error for every poll inside the own run.
#[test]
fn an_async_node_may_await_a_node_of_its_own_run() {
    for exec in [Executor::inline(), Executor::sim(3), executor(1), executor(2)] {
        let other: Arc<Mutex<Option<NodeFuture>>> = Arc::default();
        let (mut g, awaited) = (Graph::new(), other.clone());
        let waits = g.future("waits", (), move || {
            let node = awaited.lock().unwrap().take().unwrap();
            async move { Ok(node.await?) }
        });
        let end = g.task("other", (), || ());
        g.output("waits", &waits);
        g.output("other", &end);
        let run = exec.run(&g.compile_with(&PerOperator).unwrap(), Inputs::new());
        *other.lock().unwrap() = Some(run.node("other"));
        block_on(run).unwrap();
    }
}

#[test]
fn what_is_polled_in_a_task_can_be_awaited_elsewhere() {
    // Seen to fail when a refused run counts as spent.
    let exec = executor(1);
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    in_a_task(&exec, move |exec| {
        let mut run = exec.run(&one(), Inputs::new());
        assert!(matches!(poll_once(&mut run), Poll::Ready(Err(error)) if error.to_string() == SAID));
        sender.lock().unwrap().send(run).unwrap();
    });
    assert_eq!(*value_of::<i32>(block_on(receiver.recv().unwrap()), "one"), 1);
}

/// Blocks on a run of the executor when it observes a node. Keeps the node's name, and the result of the
/// wait.
struct Waits {
    exec: OnceLock<Executor>,
    said: Mutex<Vec<(String, String)>>,
}

impl Observer for Waits {
    fn ended(&self, span: &WorkSpan) {
        // The run that this observer waits for is cancelled; its node is observed as well.
        if span.work.node_id().is_none() || span.work.name == "never" {
            return;
        }
        let said = told(self.exec.get().unwrap().run(&never(), Inputs::new())).unwrap_err();
        self.said.lock().unwrap().push((span.work.name.to_string(), said));
    }
}

#[test]
fn an_observer_that_waits_is_told_so() {
    // Seen to fail when observers were allowed to wait: it waited for ever.
    let waits = Arc::new(Waits { exec: OnceLock::new(), said: Mutex::default() });
    let exec = Executor::builder().workers(2).observer(waits.clone()).build().unwrap();
    assert!(waits.exec.set(exec.clone()).is_ok());
    let mut g = Graph::new();
    let task = g.task("task", (), || 1);
    let kernel = g.kernel("kernel", &task, |_: &mut HostStream, x: &i32| x + 1);
    let last = g.repeat("loop", &kernel, times(1), |body, x| body.task("in loop", &x, |x: &i32| x + 1));
    g.output("last", &last);
    block_on(exec.run(&g.compile_with(&Single).unwrap(), Inputs::new())).unwrap();
    let said = waits.said.lock().unwrap();
    let names: Vec<_> = said.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["task", "kernel", "loop/body/in loop", "loop"]);
    assert!(said.iter().all(|(_, said)| said == SAID), "{said:?}");
}

/// Waits for a variable that is never written when it observes an operation.
struct Reads(OnceLock<Var<i32>>, Mutex<Vec<String>>);

impl Observer for Reads {
    fn ended(&self, _: &WorkSpan) {
        self.1.lock().unwrap().extend(told(self.0.get().unwrap().read()).err());
    }
}

// Seen to fail (a hang without workers) with an observer that is not called inside the engine.
#[test]
fn an_observer_that_waits_for_an_operation_gets_an_error() {
    for workers in [0, 1, 2] {
        let reads = Arc::new(Reads(OnceLock::new(), Mutex::default()));
        let exec = Executor::builder().workers(workers).observer(reads.clone()).build().unwrap();
        let engine = Engine::new(&exec).unwrap();
        let never = engine.empty_var("never");
        drop(block_on(engine.push(Op::future("never", (), &never, std::future::pending::<Result<i32, BoxError>>))).unwrap());
        assert!(reads.0.set(never).is_ok());
        block_on(async { engine.push(Op::task("op", (), (), || ())).await?.await }).unwrap();
        let said = reads.1.lock().unwrap().join("\n");
        assert!(said.starts_with("an operation that is not asynchronous, or its observer, waits"), "{workers}: {said}");
    }
}

/// Runs a plan when it is dropped, and counts that.
struct RunsInDrop(Executor, Arc<AtomicUsize>);

impl Drop for RunsInDrop {
    fn drop(&mut self) {
        self.1.fetch_add(usize::from(told(self.0.run(&one(), Inputs::new())).is_ok()), SeqCst);
    }
}

#[test]
fn the_drop_of_a_released_value_may_wait_where_there_is_another_worker() {
    // Seen to fail when a release counts as the body of the node before it.
    let (exec, dropped) = (executor(2), Arc::new(AtomicUsize::new(0)));
    let mut g = Graph::new();
    let (own, count) = (exec.clone(), dropped.clone());
    let value = g.task("value", (), move || RunsInDrop(own.clone(), count.clone()));
    let read = g.task("read", &value, |_: &RunsInDrop| 1);
    let after = g.task("after", &read, |x: &i32| *x);
    g.output("after", &after);
    block_on(exec.run(&g.compile_with(&Single).unwrap(), Inputs::new())).unwrap();
    assert_eq!(dropped.load(SeqCst), 1);
}

// Seen to fail when the drop counts as the body of the node.
#[test]
fn the_drop_of_a_cancelled_future_may_wait_where_there_is_another_worker() {
    let (exec, dropped, canceller) = (executor(2), Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Canceller>::new()));
    let (mut g, own, count, cancels) = (Graph::new(), exec.clone(), dropped.clone(), canceller.clone());
    g.future("node", (), move || {
        let (held, canceller) = (RunsInDrop(own.clone(), count.clone()), cancels.clone());
        async move {
            // A worker polls the node again, finds the cancel, and drops this.
            canceller.get().unwrap().cancel();
            std::future::pending::<()>().await;
            drop(held);
            Ok(())
        }
    });
    let run = exec.run(&g.compile_with(&Single).unwrap(), Inputs::new());
    canceller.set(run.canceller()).unwrap();
    assert!(block_on(run).unwrap_err().is_cancelled());
    assert_eq!(dropped.load(SeqCst), 1);
}

/// Polls a run when it is woken.
struct Polls(Mutex<Option<anabranch::Run>>, mpsc::Sender<bool>);

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        if let Some(run) = &mut *self.0.lock().unwrap() {
            let polled = poll_with(run, &Waker::from(Arc::new(Ignores)));
            self.1.send(!matches!(polled, Poll::Ready(Err(_)))).unwrap();
        }
    }
}

struct Ignores;

impl Wake for Ignores {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_poll_runs() {
    // Seen to fail when a waker of a node counts as the body after that node.
    let exec = executor(1);
    let mut g = Graph::new();
    let (began, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let may_end = Mutex::new(may_end);
    let x = g.input::<i32>("x");
    let first = g.task("first", take(&x), move |x: i32| {
        began.send(()).unwrap();
        may_end.lock().unwrap().recv().unwrap();
        x
    });
    let second = g.task("second", &first, |x: &i32| *x);
    g.output("second", &second);
    let mut run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => 1 });
    let mut node = run.node("first");
    let (sender, said) = mpsc::channel();
    let waker = Waker::from(Arc::new(Polls(Mutex::new(Some(exec.run(&one(), Inputs::new()))), sender)));
    assert!(poll_once(&mut run).is_pending());
    has_begun.recv().unwrap();
    assert!(std::pin::Pin::new(&mut node).poll(&mut Context::from_waker(&waker)).is_pending());
    end.send(()).unwrap();
    block_on(run).unwrap();
    assert!(said.recv().unwrap(), "the worker's waker was told that it is a task");
}
