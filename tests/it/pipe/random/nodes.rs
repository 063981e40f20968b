//! The nodes of a random pipeline, built from its data.

use std::sync::Arc;

use anabranch::graph::{Each, times};
use anabranch::pipe::{State, StateGuard};
use anabranch::{BoxError, Graph, HostStream, Value, take};

use super::super::{Tallied, Word};
use super::orders::Orders;
use super::spec::{ASYNC, BRANCH, Fate, KERNEL, LOOP, Node, Read, Spec, TASK, TRY_TASK, fate, goes_on, mix, which};
use crate::support::panic_quietly;

/// The work of a node, for all items.
#[derive(Clone)]
struct Work {
    seed: u64,
    failing: u64,
    kind: usize,
    node: usize,
    tally: Tallied,
    orders: Arc<Orders>,
}

impl Work {
    /// Mixes the words and the state, and stores the result in the state.
    fn done(&self, state: Option<&mut Word>, item: u64, words: impl Iterator<Item = u64>) -> Result<Word, BoxError> {
        let _running = (self.kind < ASYNC).then(|| self.orders.begin(self.node, item));
        let mut made = mix(self.node as u64, words);
        if let Some(state) = state {
            made = mix(made, [state.get()].into_iter());
            *state = self.tally.word(0, made);
        }
        match fate(self.seed, self.failing, self.kind, self.node, item) {
            Fate::Ok => Ok(self.tally.word(item, made)),
            Fate::Error => Err("as it should".into()),
            Fate::Panic => panic_quietly("as it should"),
        }
    }

    fn done_or_panic(&self, state: Option<&mut Word>, item: u64, words: impl Iterator<Item = u64>) -> Word {
        self.done(state, item, words).unwrap_or_else(|_| panic_quietly("a task cannot fail"))
    }
}

/// Adds the nodes. Returns their values.
pub(super) fn add_all(
    g: &mut Graph,
    spec: &Spec,
    item: Value<Word>,
    feedbacks: &[Value<Word>],
    tally: &Tallied,
) -> Vec<Value<Word>> {
    let mut values: Vec<Value<Word>> = Vec::new();
    let orders = Arc::new(Orders::new(spec));
    for (number, node) in spec.nodes.iter().enumerate() {
        let value = |read: &Read| if let Read::Node(node) = read { values[*node] } else { item };
        let mut reads: Vec<Value<Word>> = node.feedbacks.iter().map(|&feedback| feedbacks[feedback]).collect();
        reads.extend(node.reads.iter().chain([&node.last]).map(value));
        let work = Work {
            seed: spec.seed,
            failing: spec.failing,
            kind: node.kind,
            node: number,
            tally: tally.clone(),
            orders: orders.clone(),
        };
        let made = add(g, node, work, reads);
        g.node(&made).phase(node.phase).cost_us(1.0 + node.kind as f64);
        values.push(made);
    }
    for edge in &spec.item_edges {
        g.node(&values[edge.target]).after_item(&values[edge.source], edge.items);
    }
    values
}

/// Adds the node. It reads `values`, and may take the last of them.
fn add(g: &mut Graph, node: &Node, work: Work, mut values: Vec<Value<Word>>) -> Value<Word> {
    let (last, name) = (values.pop().unwrap(), format!("node {}", work.node));
    let words = |reads: Each<'_, Word>, last: &Word| reads.iter().chain([last]).map(Word::get).collect::<Vec<u64>>().into_iter();
    let mut state = node.has_state.then(|| {
        let tally = work.tally.clone();
        g.state(format!("state {}", work.node), move || tally.word(0, 3))
    });
    match (node.kind, &mut state, node.takes) {
        (LOOP | BRANCH, ..) if node.copies => {
            let tally = work.tally.clone();
            let copy = g.task(format!("copy for {name}"), &last, move |last: &Word| tally.word(last.item, last.get()));
            g.node(&copy).phase(node.phase);
            add(g, &Node { takes: true, copies: false, ..node.clone() }, work, [&values[..], &[copy]].concat())
        }
        (LOOP, ..) => add_loop(g, name, node, node.times, &work, &values, &last),
        (BRANCH, ..) => add_branch(g, name, node, &work, &values, &last),
        (ASYNC, state, takes) => add_async(g, name, state, takes, node.yields, work, values, last),
        (TASK, None, false) => {
            g.task(name, (&values[..], &last), move |r: Each<Word>, l: &Word| work.done_or_panic(None, l.item, words(r, l)))
        }
        (TASK, Some(s), true) => g.task(name, (s, &values[..], take(&last)), move |s: &mut Word, r: Each<Word>, l: Word| {
            work.done_or_panic(Some(s), l.item, words(r, &l))
        }),
        (KERNEL, None, false) => g.try_kernel(name, (&values[..], &last), move |_: &mut HostStream, r: Each<Word>, l: &Word| {
            work.done(None, l.item, words(r, l))
        }),
        (_, None, false) => {
            g.try_task(name, (&values[..], &last), move |r: Each<Word>, l: &Word| work.done(None, l.item, words(r, l)))
        }
        (_, None, true) => {
            g.try_task(name, (&values[..], take(&last)), move |r: Each<Word>, l: Word| work.done(None, l.item, words(r, &l)))
        }
        (_, Some(s), false) => g.try_task(name, (s, &values[..], &last), move |s: &mut Word, r: Each<Word>, l: &Word| {
            work.done(Some(s), l.item, words(r, l))
        }),
        (_, Some(s), true) => g.try_task(name, (s, &values[..], take(&last)), move |s: &mut Word, r: Each<Word>, l: Word| {
            work.done(Some(s), l.item, words(r, &l))
        }),
    }
}

/// Adds a node inside a loop or a branch, which makes the next state of the last one.
fn step(g: &mut Graph, node: &Node, work: &Work, values: &[Value<Word>], state: &Value<Word>) -> Value<Word> {
    let kind = if node.yields > 0 { ASYNC } else { TRY_TASK };
    add(g, &Node { kind, ..node.clone() }, work.clone(), [values, &[*state]].concat())
}

fn add_loop(
    g: &mut Graph,
    name: String,
    node: &Node,
    iterations: Option<u64>,
    work: &Work,
    values: &[Value<Word>],
    last: &Value<Word>,
) -> Value<Word> {
    let body = |g: &mut Graph, state: Value<Word>| step(g, node, work, values, &state);
    let more = |g: &mut Graph, state: Value<Word>| g.task("more", &state, |state: &Word| goes_on(state.get()));
    match (iterations, node.takes) {
        (Some(count), true) => g.repeat(name, take(last), times(count), body),
        (Some(count), false) => g.repeat(name, last, times(count), body),
        (None, true) => g.repeat(name, take(last), more, body),
        (None, false) => g.repeat(name, last, more, body),
    }
}

/// One arm is a step, the other a loop of two.
fn add_branch(g: &mut Graph, name: String, node: &Node, work: &Work, values: &[Value<Word>], last: &Value<Word>) -> Value<Word> {
    let selector = g.task(format!("which of {name}"), last, |last: &Word| which(last.get()));
    g.node(&selector).phase(node.phase);
    let one = |g: &mut Graph, state: Value<Word>| step(g, node, work, values, &state);
    let two = |g: &mut Graph, state: Value<Word>| add_loop(g, "two".into(), node, Some(2), work, values, &state);
    match node.takes {
        true => g.branch(name, &selector, take(last)).arm(one).arm(two).join(),
        false => g.branch(name, &selector, last).arm(one).arm(two).join(),
    }
}

#[allow(clippy::too_many_arguments, reason = "all that is known of the node")]
fn add_async(
    g: &mut Graph,
    name: String,
    state: &mut Option<State<Word>>,
    takes: bool,
    yields: usize,
    work: Work,
    values: Vec<Value<Word>>,
    last: Value<Word>,
) -> Value<Word> {
    let finish = move |work: Work, state: Option<StateGuard<Word>>, reads: Vec<Arc<Word>>, item: u64, last: u64| async move {
        let mut state = state;
        for _ in 0..yields {
            smol::future::yield_now().await;
        }
        work.done(state.as_deref_mut(), item, reads.iter().map(|read| read.get()).chain([last]))
    };
    match (state, takes) {
        (None, false) => g.future(name, (&values[..], &last), move |r: Vec<Arc<Word>>, l: Arc<Word>| {
            finish(work.clone(), None, r, l.item, l.get())
        }),
        (None, true) => g.future(name, (&values[..], take(&last)), move |r: Vec<Arc<Word>>, l: Word| {
            finish(work.clone(), None, r, l.item, l.get())
        }),
        (Some(s), false) => {
            g.future(name, (s, &values[..], &last), move |s: StateGuard<Word>, r: Vec<Arc<Word>>, l: Arc<Word>| {
                finish(work.clone(), Some(s), r, l.item, l.get())
            })
        }
        (Some(s), true) => {
            g.future(name, (s, &values[..], take(&last)), move |s: StateGuard<Word>, r: Vec<Arc<Word>>, l: Word| {
                finish(work.clone(), Some(s), r, l.item, l.get())
            })
        }
    }
}
