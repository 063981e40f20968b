//! A scope with every kind of operation, ended at every moment: dropped after each poll, and dropped,
//! cancelled, failed or panicked at each batch of each operation. Afterwards nothing of the run is left, and
//! the next run gives the right results.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use anabranch::run::Canceller;
use anabranch::scope::{Array, Kept, Operator, Scalar, Scope, Store, Streaming, Tile, TileMut, TilePlace, operator};
use anabranch::sim::{Faults, Order};
use anabranch::{BoxError, Error, Executor, Graph, Outputs, Plan, Result, Run, Value, inputs};
use futures::channel::oneshot;
use smol::future::yield_now;

use crate::support::{Alarm, Counted, Tally, block_on, executor, panic_quietly, poll_once, poll_with, until};

const TILES: usize = 6;
/// The width of a leaf of a reduction, so each tile is a row.
const WIDTH: usize = 4096;

/// A place in the code of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spot {
    name: &'static str,
    /// The operation that an error names.
    operation: &'static str,
    batches: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Sure,
    Fallible,
    Async,
}

const fn spot(name: &'static str, operation: &'static str, batches: u64, kind: Kind) -> Spot {
    Spot { name, operation, batches, kind }
}

impl Spot {
    fn ended(self, how: &str, batch: u64) -> String {
        let tile = if self.batches > 1 { format!(", at [{batch}..{}, 0..{WIDTH}]", batch + 1) } else { String::new() };
        format!("operation 's/{}' {how} in batch {batch} of {}{tile}", self.operation, self.batches)
    }
}

const SPOTS: [Spot; 14] = [
    spot("one", "one", 1, Kind::Sure),
    spot("load call", "load", TILES as u64, Kind::Sure),
    spot("load", "load", TILES as u64, Kind::Async),
    spot("blur", "blur", TILES as u64, Kind::Sure),
    spot("add", "add", TILES as u64, Kind::Fallible),
    spot("double", "double", TILES as u64, Kind::Sure),
    spot("copied", "copied", TILES as u64, Kind::Sure),
    spot("both", "both", TILES as u64, Kind::Fallible),
    spot("sum", "sum", TILES as u64, Kind::Sure),
    spot("combine", "sum", TILES as u64, Kind::Sure),
    spot("end", "end", 1, Kind::Fallible),
    spot("save call", "save", TILES as u64, Kind::Sure),
    spot("save", "save", TILES as u64, Kind::Async),
    spot("less", "less", TILES as u64, Kind::Sure),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Fails,
    Panics,
    /// It cancels its own run.
    Cancels,
    /// A closure waits for the test; a future waits for ever.
    Waits,
}

/// The state that the closures of a plan share with the test.
#[derive(Default)]
struct Control {
    event: Mutex<Option<(Spot, u64, Event)>>,
    canceller: Mutex<Option<Canceller>>,
    /// 1: a closure or a future waits. 2: a closure may go on.
    stage: AtomicUsize,
    /// Whether transfers wait for the test, and those that wait.
    is_by_hand: AtomicBool,
    waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
    saved: Mutex<Vec<u8>>,
    /// Whether a batch has read a tile that was not written.
    has_read_other: AtomicBool,
    tally: Tally,
}

/// A counted value that each closure and each future owns.
struct Witness {
    control: Arc<Control>,
    alive: Counted,
}

/// A value that is made once, or a part of one. It is counted.
struct Word {
    batch: u64,
    counted: Counted,
}

impl Control {
    fn witness(self: &Arc<Self>) -> Witness {
        Witness { control: self.clone(), alive: self.tally.value(0) }
    }

    fn word(&self, batch: u64, word: u64) -> Word {
        Word { batch, counted: self.tally.value(word) }
    }

    /// Lets a transfer go on: the first that waits, or the last. Returns whether one was waiting.
    fn release(&self, is_first: bool) -> bool {
        let mut waiting = self.waiting.lock().unwrap();
        let next = if is_first { waiting.pop_front() } else { waiting.pop_back() };
        drop(waiting);
        next.map(|next| next.send(()).unwrap()).is_some()
    }
}

impl Witness {
    fn event(&self, spot: &str, batch: u64) -> Option<Event> {
        assert_eq!(self.alive.get(), 0);
        let planned = *self.control.event.lock().unwrap();
        planned.filter(|planned| planned.0.name == spot && planned.1 == batch).map(|planned| planned.2)
    }

    fn happens(&self, spot: &str, batch: u64) -> std::result::Result<(), BoxError> {
        match self.event(spot, batch) {
            None => {}
            Some(Event::Fails) => return Err("no more".into()),
            Some(Event::Panics) => panic_quietly("no more"),
            Some(Event::Cancels) => self.control.canceller.lock().unwrap().clone().unwrap().cancel(),
            Some(Event::Waits) => {
                self.control.stage.store(1, SeqCst);
                until(|| self.control.stage.load(SeqCst) == 2);
            }
        }
        Ok(())
    }

    /// Suspends. The event happens in the second poll.
    async fn awaits(&self, spot: &str, batch: u64) -> std::result::Result<(), BoxError> {
        if self.control.is_by_hand.load(SeqCst) {
            let (go_on, released) = oneshot::channel();
            self.control.waiting.lock().unwrap().push_back(go_on);
            released.await?;
        } else {
            yield_now().await;
        }
        if self.event(spot, batch) == Some(Event::Waits) {
            self.control.stage.store(1, SeqCst);
            pending::<()>().await;
        }
        self.happens(spot, batch)
    }
}

fn plus(control: &Arc<Control>) -> impl Operator<Word> + use<> {
    let [none, both] = [(); 2].map(|()| control.witness());
    operator(
        "plus",
        move || none.control.word(u64::MAX, 0),
        move |before: Word, behind: Word| {
            both.happens("combine", behind.batch).unwrap();
            both.control.word(behind.batch, before.counted.get() + behind.counted.get())
        },
    )
}

/// Each tile is a row, and all elements of a row are the same. The comments below list the values of the
/// rows.
fn program(s: &mut Scope, given: &Value<Word>, control: &Arc<Control>) -> (Kept<u16, 2>, Scalar<Word>, Scalar<Word>) {
    let [a, b, c] = ["a", "b", "c"].map(|name| s.store::<u8, 2>(name, [TILES, WIDTH]));
    let w = control.witness();
    let one = s.value("one", given, move |given: &Word| {
        w.happens("one", 0).unwrap();
        w.control.word(0, given.counted.get())
    });
    // 1, 2, 3, 4, 5, 6.
    let w = control.witness();
    s.load("load", &a, move |place: TilePlace<2>, mut buffer: Vec<u8>| {
        let own = w.control.witness();
        w.happens("load call", place.batch).unwrap();
        async move {
            own.awaits("load", place.batch).await?;
            buffer.fill(place.start[0] as u8 + 1);
            Ok(buffer)
        }
    });
    // 3, 6, 9, 12, 15, 11. Because of the halo, it runs a batch behind.
    let w = control.witness();
    s.write("blur", (a.halo([1, 0], [1, 0]), &one), &b, move |a: Tile<u8, 2>, one: &Word, mut b: TileMut<u8, 2>| {
        w.happens("blur", b.place().batch).unwrap();
        let is_other = a.range(0).any(|row| usize::from(a.row(row)[0]) != row + 1);
        w.control.has_read_other.fetch_or(is_other, SeqCst);
        let sum: u8 = a.range(0).map(|row| a.row(row)[WIDTH - 1]).sum();
        b.fill(sum * one.counted.get() as u8);
    });
    // 5, 8, 11, 14, 17, 13.
    let w = control.witness();
    s.try_write("add", (&b, &one), &c, move |b: Tile<u8, 2>, one: &Word, mut c: TileMut<u8, 2>| {
        c.fill(b.as_slice()[0] + 2 * one.counted.get() as u8);
        w.happens("add", c.place().batch)
    });
    updates(s, &c, control)
}

fn updates(s: &mut Scope, c: &Store<u8, 2>, control: &Arc<Control>) -> (Kept<u16, 2>, Scalar<Word>, Scalar<Word>) {
    // 10, 16, 22, 28, 34, 26. Nothing uses `c` afterwards: it is changed in place.
    let w = control.witness();
    let d = s.update("double", (), c, move |mut d: TileMut<u8, 2>| {
        w.happens("double", d.place().batch).unwrap();
        d.fill(2 * d.as_slice()[0]);
    });
    // 11, 17, 23, 29, 35, 27. It changes a copy.
    let w = control.witness();
    let e = s.update("copied", (), &d, move |mut e: TileMut<u8, 2>| {
        w.happens("copied", e.place().batch).unwrap();
        e.fill(1 + e.as_slice()[0]);
    });
    // 21, 33, 45, 57, 69, 53.
    let w = control.witness();
    let f = s.try_update("both", &d, &e, move |d: Tile<u8, 2>, mut f: TileMut<u8, 2>| {
        f.fill(d.as_slice()[0] + f.as_slice()[0]);
        w.happens("both", f.place().batch)
    });
    let w = control.witness();
    let sum = s.fold("sum", &f, plus(control), move |f: Tile<u8, 2>| {
        w.happens("sum", f.place().batch).unwrap();
        w.control.word(f.place().batch, f.as_slice()[0].into())
    });
    let w = control.witness();
    let end = s.try_value("end", &sum, move |sum: &Word| w.happens("end", 0).map(|()| w.control.word(0, sum.counted.get() + 2)));
    let w = control.witness();
    s.save("save", &f, move |place: TilePlace<2>, tile: Vec<u8>| {
        let own = w.control.witness();
        w.happens("save call", place.batch).unwrap();
        async move {
            own.awaits("save", place.batch).await?;
            own.control.saved.lock().unwrap().push(tile[WIDTH - 1]);
            Ok(tile)
        }
    });
    // 257, 245, 233, 221, 209, 225. It needs the whole sum: here the scope is cut.
    let w = control.witness();
    let less = s.store("less", [TILES, WIDTH]);
    s.write("less", (&f, &sum), &less, move |f: Tile<u8, 2>, sum: &Word, mut less: TileMut<u16, 2>| {
        w.happens("less", less.place().batch).unwrap();
        less.fill(sum.counted.get() as u16 - u16::from(f.as_slice()[0]));
    });
    (s.keep(&less), sum, end)
}

/// A plan, an executor, and the number of values that the plan's closures own.
struct Case {
    control: Arc<Control>,
    plan: Plan,
    exec: Executor,
    closures: isize,
}

impl Case {
    fn new(exec: Executor) -> Self {
        let control = Arc::<Control>::default();
        let mut g = Graph::new();
        let given = g.input::<Word>("given");
        let streaming = Streaming::relaxed().over_decompose_factor(TILES).workers(1).in_flight(3);
        let (kept, sum, end) = g.scope("s", streaming, |s| program(s, &given, &control));
        g.output("kept", &kept);
        g.output("sum", &sum);
        g.output("end", &end);
        let plan = g.compile().unwrap();
        drop(g);
        let closures = control.tally.alive();
        Self { control, plan, exec, closures }
    }

    fn is_threaded(&self) -> bool {
        self.exec.workers() > 0
    }

    fn run(&self, event: Option<(Spot, u64, Event)>) -> Run {
        *self.control.event.lock().unwrap() = event;
        self.control.stage.store(0, SeqCst);
        self.control.is_by_hand.store(false, SeqCst);
        self.control.waiting.lock().unwrap().clear();
        self.control.saved.lock().unwrap().clear();
        let run = self.exec.run(&self.plan, inputs! { "given" => self.control.word(0, 1) });
        *self.control.canceller.lock().unwrap() = Some(run.canceller());
        run
    }

    /// Checks that only the closures' values are alive, and that nothing runs.
    fn is_settled(&self) {
        block_on(self.exec.idle()).unwrap();
        let left = || (self.control.tally.alive() - self.closures, self.exec.in_flight(), self.exec.in_limbo());
        // A worker may still be leaving a run that has ended.
        if self.is_threaded() {
            until(|| left() == (0, 0, 0));
        }
        assert_eq!(left(), (0, 0, 0), "{:?}", self.exec);
        assert!(!self.control.has_read_other.load(SeqCst), "{:?}: a batch has read what was not written", self.exec);
    }

    /// Checks the same, and that the next run gives the right results.
    fn is_as_before(&self) {
        self.is_settled();
        self.is_right(block_on(self.run(None)));
        self.is_settled();
    }

    fn is_right(&self, outputs: Result<Outputs>) {
        let mut outputs = outputs.unwrap();
        let mut word = |name: &str| outputs.take::<Word>(name).unwrap().counted.get();
        assert_eq!([word("sum"), word("end")], [278, 280]);
        let kept = outputs.take::<Array<u16, 2>>("kept").unwrap();
        let expected = [257, 245, 233, 221, 209, 225].map(|value| [value; WIDTH]).concat();
        assert_eq!(kept.as_slice(), expected);
        assert_eq!(*self.control.saved.lock().unwrap(), [21, 33, 45, 57, 69, 53]);
    }

    /// Polls a run at most `polls` times. Lets a transfer go on after each poll. Returns the run's result if
    /// it ended.
    fn poll_times(&self, run: &mut Run, polls: usize, is_first: bool) -> Option<Result<Outputs>> {
        let (alarm, waker) = Alarm::new();
        self.control.is_by_hand.store(true, SeqCst);
        for _ in 0..polls {
            let rings = alarm.rings();
            if let Poll::Ready(ended) = poll_with(run, &waker) {
                return Some(ended);
            }
            if self.is_threaded() {
                until(|| alarm.rings() > rings || self.control.release(is_first));
            } else if alarm.rings() == rings {
                assert!(self.control.release(is_first), "the run waits for nothing");
                assert!(alarm.rings() > rings, "nothing wakes the task");
            }
        }
        None
    }

    /// Polls a run until an operation waits.
    fn poll_to_wait(&self, run: &mut Run) {
        until(|| {
            assert!(poll_once(run).is_pending());
            self.control.stage.load(SeqCst) == 1
        });
    }

    /// Drops the plan and the executor, and checks that no value is left.
    fn end(self) {
        let Self { control, plan, exec, .. } = self;
        drop((plan, exec));
        until(|| control.tally.alive() == 0 && Arc::strong_count(&control) == 1);
    }
}

fn cases() -> Vec<Case> {
    let simulated = [3, 4].map(|seed| Executor::builder().simulated(Order::Seeded(seed), Faults::new(0)).build().unwrap());
    [Executor::inline(), executor(2)].into_iter().chain(simulated).map(Case::new).collect()
}

/// Calls `end` with a run after each number of polls until it ends.
fn for_all_polls(end: impl Fn(&Case, Run)) {
    for case in cases() {
        for is_first in [true, false] {
            for polls in 0.. {
                let mut run = case.run(None);
                if let Some(ended) = case.poll_times(&mut run, polls, is_first) {
                    assert!(polls > 2 * TILES, "it ended in poll {polls}");
                    case.is_right(ended);
                    break;
                }
                end(&case, run);
                case.is_as_before();
            }
        }
        case.end();
    }
}

/// Calls `check` with each batch of each spot where the event can happen.
fn for_all(event: Event, mut check: impl FnMut(&Case, (Spot, u64, Event))) {
    for case in cases() {
        for spot in SPOTS.into_iter().filter(|spot| event != Event::Fails || spot.kind != Kind::Sure) {
            (0..spot.batches).for_each(|batch| check(&case, (spot, batch, event)));
        }
        case.end();
    }
}

/// Calls `end` with a run while an operation waits, for all batches of all operations.
fn for_all_waits(end: impl Fn(&Case, Run)) {
    for_all(Event::Waits, |case, event| {
        // Without workers, closures run inside a poll, so no other thread can act on the run meanwhile.
        if case.is_threaded() || event.0.kind == Kind::Async {
            let mut run = case.run(Some(event));
            case.poll_to_wait(&mut run);
            end(case, run);
            case.is_as_before();
        }
    });
}

/// Returns the error of the operation that makes a run fail.
fn cause(case: &Case, event: (Spot, u64, Event)) -> Error {
    let error = block_on(case.run(Some(event))).unwrap_err();
    error.source().unwrap().downcast_ref::<Error>().unwrap().clone()
}

#[test]
fn the_program_streams_in_two_groups_with_a_skew() {
    let case = Case::new(Executor::inline());
    let streamed = case.plan.scope("s").unwrap().streamed();
    assert_eq!(streamed.groups().len(), 2);
    assert!(streamed.groups()[0].skews().iter().any(|&skew| skew > 0));
    case.is_as_before();
    case.end();
}

#[test]
fn a_run_may_be_dropped_after_any_poll() {
    // Seen to leak with transfers whose futures are never dropped, and to hang without the waker of the run.
    for_all_polls(|_, run| drop(run));
}

#[test]
fn a_run_may_be_cancelled_after_any_poll() {
    for_all_polls(|case, run| {
        run.cancel();
        match block_on(run) {
            Err(error) => assert!(error.is_cancelled(), "{error}"),
            Ok(_) => assert!(case.is_threaded(), "the run has ended by itself"),
        }
    });
}

#[test]
fn a_run_may_be_dropped_at_any_operation() {
    // Seen to crash if the consumer of the steps is dropped and does not abandon their run.
    for_all_waits(|case, run| {
        drop(run);
        case.control.stage.store(2, SeqCst);
    });
}

#[test]
fn a_run_may_be_cancelled_at_any_operation() {
    for_all_waits(|case, run| {
        run.cancel();
        case.control.stage.store(2, SeqCst);
        assert!(block_on(run).unwrap_err().is_cancelled());
    });
}

#[test]
fn any_operation_may_cancel_its_own_run() {
    for_all(Event::Cancels, |case, event| {
        assert!(block_on(case.run(Some(event))).unwrap_err().is_cancelled(), "{event:?}");
        case.is_as_before();
    });
}

#[test]
fn a_failure_of_any_operation_names_it_and_its_tile() {
    // Seen to fail with the number of the step as that of the batch, with the error of the last step in place
    // of the first, and with a group that is not marked as failed: a batch reads a tile that was not written.
    for_all(Event::Fails, |case, (spot, batch, event)| {
        let cause = cause(case, (spot, batch, event));
        assert_eq!(cause.to_string(), spot.ended("failed", batch));
        assert_eq!(cause.node(), Some(&*format!("s/{}", spot.operation)));
        assert_eq!(cause.source().unwrap().to_string(), "no more");
        drop(cause);
        case.is_as_before();
    });
}

#[test]
fn a_panic_of_any_operation_names_it_and_its_tile() {
    // Seen to fail with a combining node that is not known as one of its reduction.
    for_all(Event::Panics, |case, (spot, batch, event)| {
        let cause = cause(case, (spot, batch, event));
        assert!(cause.is_panic());
        assert_eq!(cause.to_string(), format!("{}: no more", spot.ended("panicked", batch)));
        case.is_as_before();
    });
}
