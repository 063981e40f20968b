//! The results of a random pipeline, item by item.

use super::spec::{BRANCH, Fate, LOOP, Node, Read, Spec, fate, mix, which};

/// A result: its words, or the names of the nodes that fail; none if the item itself is an error.
pub(super) type Expected = Result<(u64, u64), Vec<String>>;

/// Returns a node's result for its words, and its number of steps.
fn made(node: &Node, at: usize, words: &[u64]) -> (u64, u64) {
    let (&last, others) = words.split_last().unwrap();
    let step = |word: u64| mix(at as u64, others.iter().copied().chain([word]));
    match (node.kind, which(last)) {
        (LOOP, _) => {
            let (mut word, mut steps) = (last, 0);
            while node.goes_on(steps, word) {
                (word, steps) = (step(word), steps + 1);
            }
            (word, steps)
        }
        (BRANCH, None) => (last, 0),
        (BRANCH, Some(1)) => (step(step(last)), 2),
        _ => (step(last), 1),
    }
}

/// Processes one item after the other.
pub(super) fn model(spec: &Spec, lags: &[usize], items: &[Option<u64>]) -> Vec<Expected> {
    let mut states = vec![3; spec.nodes.len()];
    let mut fed: Vec<Vec<u64>> = lags.iter().zip(100..).map(|(&lag, init)| vec![init; lag]).collect();
    let mut results = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let (mut values, mut failed) = (Vec::<Option<u64>>::new(), Vec::new());
        for (at, node) in spec.nodes.iter().enumerate() {
            let value = |read: &Read| if let Read::Node(node) = read { values[*node] } else { *item };
            let feedbacks = node.feedbacks.iter().map(|&feedback| Some(fed[feedback][number]));
            // A taker follows all readers of the value, and depends on them.
            let mut others = spec.nodes.iter().zip(&values).filter(|(other, _)| node.takes && other.reads_value(node.last));
            let is_skipped = others.any(|(_, value)| value.is_none());
            let words: Option<Vec<u64>> = feedbacks.chain(node.reads.iter().chain([&node.last]).map(value)).collect();
            let made = words.filter(|_| !is_skipped).and_then(|words| {
                let (mut made, steps) = made(node, at, &words);
                if node.has_state {
                    made = mix(made, [states[at]].into_iter());
                    states[at] = made;
                }
                let is_ok = steps == 0 || fate(spec.seed, spec.failing, node.kind, at, number as u64) == Fate::Ok;
                if !is_ok {
                    failed.push(format!("node {at}"));
                }
                is_ok.then_some(made)
            });
            values.push(made);
        }
        for (feedback, fed) in spec.feedbacks.iter().zip(&mut fed) {
            fed.push(values[feedback.maker].unwrap_or(*fed.last().unwrap()));
        }
        let last = *values.last().unwrap();
        let second = match spec.second {
            Some(Read::Node(node)) => values[node],
            Some(Read::Item) => *item,
            None => last,
        };
        let is_ok = failed.is_empty() && item.is_some();
        results.push(if is_ok { Ok((last.unwrap(), second.unwrap())) } else { Err(failed) });
    }
    results
}
