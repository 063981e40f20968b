//! Pipelines: items in, results out, in order, on every executor.

mod dropping;
mod exploring;
mod failures;
mod feedback;
mod mistakes;
mod order;
mod panics;
mod random;
mod room;
mod runtimes;
mod settings;
mod simulated;
mod sources;
mod streams;
mod taken;
mod verified;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anabranch::graph::Graph;
use anabranch::pipe::Phases;
use anabranch::{Executor, Pipeline, Ranked, Value};
use futures::Stream;

use crate::support::{Counted, Tally, executors};

/// Makes counted words.
#[derive(Clone, Default)]
pub(crate) struct Tallied(Tally);

impl Tallied {
    pub(crate) fn word(&self, item: u64, word: u64) -> Word {
        Word { item, word: self.0.value(word), tally: self.clone() }
    }

    pub(crate) fn alive(&self) -> isize {
        self.0.alive()
    }
}

/// A word that is made for an item, and can be fed back: a clone counts, too.
pub(crate) struct Word {
    pub(crate) item: u64,
    word: Counted,
    tally: Tallied,
}

impl Word {
    pub(crate) fn get(&self) -> u64 {
        self.word.get()
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of item {}", self.get(), self.item)
    }
}

impl Clone for Word {
    fn clone(&self) -> Self {
        self.tally.word(self.item, self.get())
    }
}

/// Polls a stream once, with a waker that does nothing.
fn poll_next<S: Stream + Unpin>(stream: &mut S) -> Poll<Option<S::Item>> {
    Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Builds a pipeline with one phase for each node.
fn each<I: Send + Sync + 'static, T: Data>(build: impl FnOnce(&mut Graph, Value<I>) -> Value<T>) -> Pipeline<I, T> {
    Pipeline::new("pipeline", &Ranked::default(), build).and_then(|pipeline| pipeline.phases(Phases::Each)).unwrap()
}

trait Data: Send + Sync + 'static {}
impl<T: Send + Sync + 'static> Data for T {}

/// A pipeline of `depth` phases, each of which adds 1.
fn chained(depth: usize) -> Pipeline<u64, u64> {
    each(|g, item| crate::support::chain(g, &item, depth))
}

/// Two pipelines that give the same results. On workers, the first runs in one phase. In the second, every
/// other node holds a state, so no phases are joined.
fn chained_and_held(depth: usize) -> [Pipeline<u64, u64>; 2] {
    let held = |g: &mut Graph, item| {
        (0..depth).fold(item, |last, number| match number % 2 {
            0 => {
                let mut count = g.state(format!("count {number}"), || 0);
                g.task(format!("held {number}"), (&mut count, &last), |count: &mut u64, x: &u64| {
                    *count += 1;
                    x + 1
                })
            }
            _ => g.task(format!("free {number}"), &last, |x: &u64| x + 1),
        })
    };
    [chained(depth), each(held)]
}

/// Each executor with each of [these](chained_and_held).
fn each_run(depth: usize) -> impl Iterator<Item = (Executor, Pipeline<u64, u64>)> {
    executors().into_iter().flat_map(move |exec| chained_and_held(depth).map(|pipeline| (exec.clone(), pipeline)))
}

/// A pipeline of three phases, the second of them async: it is pending `yields` times, and has a state. Its
/// result is the sum of all items so far.
fn sums(tally: &Tallied, yields: usize) -> Pipeline<Word, Word> {
    let [first, sum] = [(); 2].map(|()| tally.clone());
    each(|g, item: Value<Word>| {
        let mut total = g.state("total", move || first.word(0, 0));
        let copy = g.task("copy", &item, |x: &Word| x.clone());
        let sum = g.future("sum", (&mut total, &copy), move |mut total: anabranch::pipe::StateGuard<Word>, x: Arc<Word>| {
            let sum = sum.clone();
            async move {
                for _ in 0..yields {
                    smol::future::yield_now().await;
                }
                *total = sum.word(0, total.get() + x.get());
                Ok(total.clone())
            }
        });
        g.task("last", &sum, |sum: &Word| sum.clone())
    })
}
