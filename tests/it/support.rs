//! Shared parts of the tests: executors, counted values, observable wakers, and waits that cannot hang.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use anabranch::policy::PerOperator;
use anabranch::{Executor, Graph, Outputs, Plan, Result, Value};
use futures::future::{Either, select};

pub(crate) use crate::dice::Dice;

/// How long a test waits for an event before it reports a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the executors of most tests: inline, one worker, two, more than there are cores, simulated.
pub(crate) fn executors() -> Vec<Executor> {
    [0, 1, 2, 8].into_iter().map(executor).chain([Executor::sim(7)]).collect()
}

pub(crate) fn executor(workers: usize) -> Executor {
    Executor::builder().workers(workers).build().unwrap()
}

pub(crate) fn plan(graph: &Graph) -> Plan {
    graph.compile_with(&PerOperator).unwrap()
}

/// Polls `future` to its end on this thread, without a runtime. Panics if it hangs.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let (future, timer) = (pin!(future), pin!(smol::Timer::after(PATIENCE)));
    match futures::executor::block_on(select(future, timer)) {
        Either::Left((output, _)) => output,
        Either::Right(_) => panic!("nothing woke the future for {PATIENCE:?}"),
    }
}

/// Polls `future` once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Polls `future` once.
pub(crate) fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Waits until the condition is true because of another thread. Panics if it hangs.
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "it did not happen in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Set in the process of a test that has one of its own.
const CHILD: &str = "ANABRANCH_TEST_CHILD";

/// Runs `body` in a process that runs only the test with the path `test`.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    alone_after(test, ":", body);
}

/// Like [`alone`], in a process that a shell starts after the command `before`.
pub(crate) fn alone_after(test: &str, before: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let script = format!("{before}\nexec \"$0\" --exact \"$1\" --nocapture --test-threads=1");
    let mut shell = Command::new("sh");
    let child = shell.args(["-c", &script]).arg(std::env::current_exe().unwrap()).arg(test).env(CHILD, "1").output().unwrap();
    let said = [child.stdout, child.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(child.status.success() && said.contains("1 passed"), "{}: {said}", child.status);
}

/// Takes the output `name` of a run that must have succeeded.
pub(crate) fn value_of<T: Send + Sync + 'static>(outputs: Result<Outputs>, name: &str) -> Arc<T> {
    outputs.unwrap().take(name).unwrap()
}

/// Counts the live values, and detects uses of dropped ones.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    alive: AtomicIsize,
    made: AtomicUsize,
    faults: AtomicUsize,
}

impl Tally {
    /// Makes a counted value.
    pub(crate) fn value(&self, word: u64) -> Counted {
        self.0.alive.fetch_add(1, SeqCst);
        self.0.made.fetch_add(1, SeqCst);
        Counted { tally: self.clone(), word, is_alive: AtomicBool::new(true) }
    }

    /// Returns the number of live values. Panics if one was used or dropped after its drop.
    pub(crate) fn alive(&self) -> isize {
        assert_eq!(self.0.faults.load(SeqCst), 0, "a dead value was used or dropped again");
        self.0.alive.load(SeqCst)
    }

    /// Returns the number of values that were ever made.
    pub(crate) fn made(&self) -> usize {
        self.0.made.load(SeqCst)
    }
}

/// A counted value. It is not `Clone` and implements `Drop`, so it cannot be copied or forgotten unnoticed.
pub(crate) struct Counted {
    tally: Tally,
    word: u64,
    is_alive: AtomicBool,
}

impl Counted {
    pub(crate) fn get(&self) -> u64 {
        if !self.is_alive.load(SeqCst) {
            self.tally.0.faults.fetch_add(1, SeqCst);
        }
        self.word
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let fault = usize::from(!self.is_alive.swap(false, SeqCst));
        self.tally.0.faults.fetch_add(fault, SeqCst);
        self.tally.0.alive.fetch_sub(1, SeqCst);
    }
}

/// A waker that counts how often it was woken.
#[derive(Default)]
pub(crate) struct Alarm(AtomicUsize);

impl Alarm {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let alarm = Arc::new(Self::default());
        (alarm.clone(), Waker::from(alarm))
    }

    pub(crate) fn rings(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Adds `count` tasks, each of which adds one to the value of the one before.
pub(crate) fn chain(graph: &mut Graph, first: &Value<u64>, count: usize) -> Value<u64> {
    let first_name = graph.shape().nodes().len();
    (0..count).fold(*first, |last, link| graph.task(format!("link {}", first_name + link), &last, |x: &u64| x + 1))
}

/// Panics without a report on standard error, which worker threads would print among the tests' own output.
pub(crate) fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

/// An operation on a hooked waker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Clone,
    Wake,
    Drop,
}

type Hook = Box<dyn Fn(Deed) + Send + Sync>;

/// Returns a waker that calls `hook` at each operation on it or on one of its clones.
pub(crate) fn hooked(hook: impl Fn(Deed) + Send + Sync + 'static) -> Waker {
    let hook: Hook = Box::new(hook);
    // SAFETY: the functions of `HOOKED` keep the contract: each waker owns one count of the hook.
    unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(Arc::new(hook)).cast(), &HOOKED)) }
}

const HOOKED: RawWakerVTable = RawWakerVTable::new(
    |data| {
        let hook = ManuallyDrop::new(hook_of(data));
        hook(Deed::Clone);
        std::mem::forget(Arc::clone(&hook));
        RawWaker::new(data, &HOOKED)
    },
    |data| hook_of(data)(Deed::Wake),
    |data| {
        let hook = ManuallyDrop::new(hook_of(data));
        hook(Deed::Wake);
    },
    |data| hook_of(data)(Deed::Drop),
);

/// Takes the count that a waker owns.
fn hook_of(data: *const ()) -> Arc<Hook> {
    // SAFETY: every waker's data comes from `Arc::into_raw` and owns one count, which a caller that keeps the
    // waker alive gives back by forgetting the returned `Arc`.
    unsafe { Arc::from_raw(data.cast()) }
}

/// Returns the processor time of this thread. On other systems than Linux, returns the time since the first
/// call.
pub(crate) fn thread_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer points to a timespec.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        static FIRST: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        FIRST.elapsed()
    }
}

/// The boxes of a picture: the node, its row, its colour and that of its rim.
pub(crate) fn boxes(picture: &str) -> Vec<(&str, &str, &str, &str)> {
    let lines = picture.lines().filter(|line: &&str| line.starts_with("<g class=\"bar\">"));
    lines
        .map(|line| {
            let [name, row] = [("<title>", " on "), (" on ", ": ")].map(|(text, end)| between(line, text, end));
            let [fill, rim] = ["fill=\"", "stroke=\""].map(|text| between(line, text, "\""));
            (name, row, fill, rim)
        })
        .collect()
}

fn between<'a>(line: &'a str, text: &str, end: &str) -> &'a str {
    line.split_once(text).unwrap().1.split_once(end).unwrap().0
}
