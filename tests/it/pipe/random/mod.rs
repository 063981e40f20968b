//! Random pipelines against a model that processes one item after the other. `PIPE_ROUNDS` is their number,
//! and `PIPE_SEED` the first seed.

mod model;
mod nodes;
mod orders;
mod spec;

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch::pipe::Beat;
use anabranch::run::Canceller;
use anabranch::{BoxError, Executor, Graph, Inputs, Outputs, Pipeline, Plan, Ranked, Value, inputs};
use futures::{Stream, StreamExt};

use self::model::{Expected, model};
use self::nodes::add_all;
use self::spec::{Feedback, Read, Spec, Way};
use super::{Tallied, Word};
use crate::support::{Dice, block_on, executors, until};

/// The program made from a random graph.
enum Built {
    Pipeline(Pipeline<Word, (Word, Word)>),
    Plan(Plan),
}

/// Adds the nodes. Returns their values, and the second result.
fn add(
    g: &mut Graph,
    spec: &Spec,
    item: Value<Word>,
    feedbacks: &[Value<Word>],
    tally: &Tallied,
) -> (Vec<Value<Word>>, Value<Word>) {
    let values = add_all(g, spec, item, feedbacks, tally);
    let last = *values.last().unwrap();
    let second = match spec.second {
        Some(Read::Node(node)) => values[node],
        Some(Read::Item) => item,
        None => {
            let tally = tally.clone();
            let copy = g.task("copy", &last, move |last: &Word| tally.word(last.item, last.get()));
            g.node(&copy).phase(spec.nodes.last().unwrap().phase);
            copy
        }
    };
    (values, second)
}

/// Builds the pipeline. Raises the number of slots if it needs more.
fn pipeline(spec: &mut Spec, tally: &Tallied) -> Pipeline<Word, (Word, Word)> {
    let built = Pipeline::new("random", &Ranked::default(), |g: &mut Graph, item: Value<Word>| {
        let feedbacks: Vec<_> = (0..spec.feedbacks.len() as u64)
            .map(|number| {
                let tally = tally.clone();
                g.feedback(format!("feedback {number}"), move || tally.word(0, 100 + number))
            })
            .collect();
        let before: Vec<Value<Word>> = feedbacks.iter().map(|feedback| **feedback).collect();
        let (values, second) = add(g, spec, item, &before, tally);
        for (feedback, from) in feedbacks.into_iter().zip(&spec.feedbacks) {
            g.feed(feedback, &values[from.maker]);
        }
        (*values.last().unwrap(), second)
    });
    let pipeline = built.and_then(|built| built.phases(spec.phases)).unwrap();
    let lags = spec.feedbacks.iter().map(|feedback| lag(&pipeline, feedback)).max();
    let needs = lags.unwrap_or(1).max(if spec.beat == Beat::Lockstep { pipeline.depth() } else { 1 });
    spec.slots = spec.slots.max(needs);
    let pipeline = pipeline.in_flight(spec.slots).unwrap();
    let pipeline = paced(&pipeline, spec.beat).unwrap_or(pipeline);
    if spec.is_serial { pipeline.serial() } else { pipeline }
}

/// Returns the pipeline with another beat. Returns none if its nodes would wait for items that begin later.
pub(super) fn paced<I, T>(pipeline: &Pipeline<I, T>, beat: Beat) -> Option<Pipeline<I, T>>
where
    I: Send + Sync + 'static,
    T: Send + 'static,
{
    let paced = pipeline.clone().beat(beat);
    let is_known = |error: &anabranch::Error| beat == Beat::Lockstep && error.to_string().contains("in lockstep '");
    paced.map_err(|error| assert!(is_known(&error), "{error}")).ok()
}

/// Returns the random pipeline of a seed.
pub(super) fn of_seed(seed: u64, tally: &Tallied) -> Pipeline<Word, (Word, Word)> {
    pipeline(&mut Spec::of_way(Some(Way::Pipeline), seed), tally)
}

/// Builds the same graph for plain runs.
fn plan(spec: &Spec, tally: &Tallied) -> Plan {
    let mut g = Graph::new();
    let item = g.input::<Word>("item");
    let (values, second) = add(&mut g, spec, item, &[], tally);
    g.output("first", values.last().unwrap());
    g.output("second", &second);
    g.compile().unwrap()
}

/// Returns the lag of a feedback, in items.
fn lag<I: Send + Sync + 'static, T: Send + 'static>(pipeline: &Pipeline<I, T>, feedback: &Feedback) -> u32 {
    let phase = |node: usize| pipeline.phase_of(&format!("node {node}")).unwrap();
    1 + phase(feedback.maker) - phase(feedback.readers[0])
}

/// A source that is pending at random, and counts its items.
struct Source<'a> {
    items: &'a [Option<u64>],
    given: &'a Cell<usize>,
    tally: Tallied,
    dice: Dice,
    pending: usize,
}

impl Stream for Source<'_> {
    type Item = Result<Word, BoxError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.dice.below(100) < this.pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let number = this.given.get();
        let Some(item) = this.items.get(number) else { return Poll::Ready(None) };
        this.given.set(number + 1);
        Poll::Ready(Some(item.map(|item| this.tally.word(number as u64, item)).ok_or_else(|| "no item".into())))
    }
}

type Found = anabranch::Result<(u64, u64)>;

fn words(outputs: anabranch::Result<Outputs>) -> Found {
    let mut outputs = outputs?;
    let mut take = |name| outputs.take::<Word>(name).map(|word| word.get());
    Ok((take("first")?, take("second")?))
}

/// Begins to run a graph over a source.
fn begin<'a>(
    spec: &Spec,
    built: &Built,
    exec: &Executor,
    source: Source<'a>,
) -> (Pin<Box<dyn Stream<Item = Found> + 'a>>, Canceller) {
    match (built, spec.way) {
        (Built::Pipeline(pipeline), _) => {
            let results = exec.try_pipe(pipeline, source);
            let canceller = results.canceller();
            (Box::pin(results.map(|result| result.map(|(first, second)| (first.get(), second.get())))), canceller)
        }
        (Built::Plan(plan), way) => {
            // Where there is no item, there is no input.
            let source = source.map(|item| item.map_or_else(|_| Inputs::new(), |item| inputs! { "item" => item }));
            let is_ordered = way == Way::Stream { is_ordered: true };
            let results = if is_ordered {
                exec.run_stream(plan, source, spec.slots)
            } else {
                exec.run_stream_unordered(plan, source, spec.slots)
            };
            let results = results.unwrap();
            let canceller = results.canceller();
            (Box::pin(results.map(words)), canceller)
        }
    }
}

/// Returns whether a result is that of the model.
fn is_as(found: &Found, expected: &Expected, is_cancelled: bool) -> bool {
    match (found, expected) {
        (Ok(words), Ok(expected)) => words == expected,
        (Err(error), Err(failed)) if failed.is_empty() => error.node().is_none() && !error.is_cancelled(),
        (Err(error), Err(failed)) => {
            // Inside loops and branches, nodes have paths.
            let node = |error: &anabranch::Error| error.node().map(|path| path.split('/').next().unwrap().to_string());
            let mut found: Vec<String> = error.others().iter().chain([error]).filter_map(node).collect();
            found.sort_unstable();
            // After a cancel only some of its nodes run.
            found == *failed || is_cancelled && !found.is_empty() && found.iter().all(|node| failed.contains(node))
        }
        _ => false,
    }
}

/// Removes the model's result for a found one from the expected results.
fn check(spec: &Spec, found: &Found, expected: &mut Vec<Expected>, is_cancelled: bool) {
    // A result without an order may be that of any item in flight.
    let among = if spec.way == (Way::Stream { is_ordered: false }) { spec.slots as usize } else { 1 };
    let place = |is_cancelled| expected.iter().take(among).position(|expected| is_as(found, expected, is_cancelled));
    let Some(place) = place(false).or_else(|| place(true).filter(|_| is_cancelled)) else {
        panic!("{found:?} instead of one of {:?}", &expected[..among.min(expected.len())])
    };
    let _ = expected.remove(place);
}

/// Runs a pipeline, to its end or until it is cancelled or dropped after some results.
fn run(spec: &Spec, built: &Built, exec: &Executor, tally: &Tallied, dice: &mut Dice) {
    let (depth, lags) = match built {
        Built::Pipeline(pipeline) => {
            (pipeline.depth(), spec.feedbacks.iter().map(|feedback| lag(pipeline, feedback) as usize).collect::<Vec<_>>())
        }
        Built::Plan(_) => (1, Vec::new()),
    };
    let len = dice.below((2 * spec.slots + depth) as usize + 1);
    let broken = spec.failing as usize / 2;
    let items: Vec<Option<u64>> = (0..len).map(|_| (dice.below(100) >= broken).then(|| dice.below(1000) as u64)).collect();
    let mut expected = model(spec, &lags, &items);
    let (given, pending) = (Cell::new(0), [0, 30, 80][dice.below(3)]);
    let source = Source { items: &items, given: &given, tally: tally.clone(), dice: Dice::new(spec.seed), pending };
    let (mut results, canceller) = begin(spec, built, exec, source);
    let (ending, until) = (dice.below(4), dice.below(len + 1));
    for number in 0..len {
        if number == until && ending == 0 {
            return drop(results);
        }
        if number == until && ending == 1 {
            canceller.cancel();
        }
        let found = block_on(results.next()).expect("a result for each item");
        assert!(given.get() <= number + 1 + spec.slots as usize, "{} items were taken up to result {number}", given.get());
        if number >= until && ending == 1 && found.as_ref().is_err_and(|error| error.is_cancelled()) {
            break;
        }
        check(spec, &found, &mut expected, ending == 1 && number >= until);
    }
    let rest = block_on(results.next());
    assert!(rest.is_none() || ending == 1 && rest.is_some_and(|rest| rest.is_err_and(|error| error.is_cancelled())));
    assert!(block_on(results.next()).is_none());
}

#[test]
fn random_pipelines_give_what_one_item_after_the_other_gives() {
    // Seen to fail with arrivals of the first items that came to the last iterations, with an item that is a
    // result and not dropped when it fails, and with a lockstep pipeline that was cancelled. With loops and
    // branches, seen to fail when a failed item leaves them as they are. As streams, seen to fail with
    // results of `run_stream` in any order, and with results that free the place of another item. With nodes
    // that wait for earlier items, seen to fail without the arrows to them.
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let rounds = number("PIPE_ROUNDS").unwrap_or(if cfg!(debug_assertions) { 300 } else { 6000 });
    let first = number("PIPE_SEED").unwrap_or(0);
    let (mut execs, tally) = (executors(), Tallied::default());
    for seed in first..first + rounds {
        let mut spec = Spec::random(seed);
        let mut dice = Dice::new(!seed);
        execs.pop();
        execs.push(Executor::sim(seed));
        let exec = &execs[dice.below(execs.len())];
        println!("seed {seed}, {exec:?}");
        let _said = Said(seed);
        let built = match spec.way {
            Way::Pipeline => Built::Pipeline(pipeline(&mut spec, &tally)),
            Way::Stream { .. } => Built::Plan(plan(&spec, &tally)),
        };
        run(&spec, &built, exec, &tally, &mut dice);
        drop(built);
        until(|| tally.alive() == 0 && exec.in_flight() == 0 && exec.in_limbo() == 0);
    }
    println!("{rounds} pipelines from seed {first} on");
}

/// Prints the seed when a check fails.
struct Said(u64);

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("PIPE_SEED={} PIPE_ROUNDS=1 gives it again: {:?}", self.0, Spec::random(self.0));
        }
    }
}
