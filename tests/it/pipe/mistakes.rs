//! Mistakes in pipelines: each error names the mistake, and says what to do.

use anabranch::graph::{Graph, times};
use anabranch::pipe::{Beat, Phases, State};
use anabranch::{Error, Executor, Pipeline, Ranked, Value, take};
use futures::{StreamExt, stream};

use super::chained;
use crate::support::{block_on, chain};

/// Returns the error of a pipeline of numbers.
fn fault(build: impl FnOnce(&mut Graph, Value<u64>) -> Value<u64>) -> Error {
    let error = Pipeline::new("pipeline", &Ranked::default(), build).unwrap_err();
    assert!(error.is_invalid_graph(), "{error}");
    error
}

fn mistake(build: impl FnOnce(&mut Graph, Value<u64>) -> Value<u64>) -> String {
    fault(build).to_string()
}

/// Adds a node that reads two values, in a phase.
fn add(g: &mut Graph, name: &'static str, phase: u32, a: &Value<u64>, b: &Value<u64>) -> Value<u64> {
    let sum = g.task(name, (a, b), |a: &u64, b: &u64| a + b);
    g.node(&sum).phase(phase);
    sum
}

#[test]
fn phases_go_forward() {
    let error = fault(|g, item| {
        let late = add(g, "late", 2, &item, &item);
        add(g, "early", 1, &late, &item)
    });
    let text = "'early' is in phase 1 and depends on 'late' in phase 2, a later one: put 'early' in phase 2 or later, or make \
                the edge feedback (in a pipeline, by g.feedback and g.feed) if 'early' needs the value of an earlier item";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("early")));
    let error = fault(|g, item| {
        let [early, late] = [("early", 1), ("late", 2)].map(|(name, phase)| add(g, name, phase, &item, &item));
        g.order(&late, &early);
        add(g, "sum", 2, &early, &late)
    });
    let text = "'early' is in phase 1 and depends on 'late' in phase 2, a later one: put 'early' in phase 2 or later, or 'late' in \
                phase 1 or earlier";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("early")));
}

#[test]
fn phases_are_counted_from_1() {
    for phase in [0, u32::MAX] {
        let error = fault(|g, item| add(g, "node", phase, &item, &item));
        assert_eq!(error.node(), Some("node"));
        assert!(error.to_string().starts_with(&format!("node 'node' is in phase {phase}: phases are from 1 to ")), "{error}");
    }
}

#[test]
fn feedback_goes_back() {
    let error = fault(|g, item| {
        let before = g.feedback("before", || 0);
        let made = add(g, "made", 1, &item, &item);
        g.feed(before, &made);
        made
    });
    assert_eq!(error.to_string(), "nothing reads feedback 'before': read it in a node as `&*feedback`, or remove it");
    let error = fault(|g, item| {
        let before = g.feedback("before", || 0);
        let made = add(g, "made", 1, &item, &item);
        let read = add(g, "read", 2, &made, &before);
        g.feed(before, &made);
        read
    });
    let text = "feedback 'before' is read by 'read' in phase 2, after its value is made by 'made' in phase 1: read the value \
                itself there, it is of the same item";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("read")));
}

#[test]
fn feedback_is_read_in_one_phase() {
    let error = fault(|g, item| {
        let before = g.feedback("before", || 0);
        let first = add(g, "first", 1, &item, &before);
        let second = add(g, "second", 2, &first, &before);
        g.feed(before, &second);
        second
    });
    let text = "'second' reads the feedback 'before' in phase 2, and 'first' in phase 1: read it in one phase, or declare two \
                feedbacks";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("second")));
}

#[test]
fn feedback_is_fed() {
    let text = mistake(|g, item| {
        let before = g.feedback("pose before", || 0);
        add(g, "node", 1, &item, &before)
    });
    assert_eq!(text, "feedback 'pose before' has no value: call g.feed(feedback, &value) with the value that a later item reads");
}

#[test]
fn one_node_holds_a_state() {
    let error = fault(|g, item| {
        let mut state = g.state("tracker", || 0u64);
        let first = g.task("first", (&mut state, &item), |_: &mut u64, x: &u64| *x);
        g.task("second", (&mut state, &first), |_: &mut u64, x: &u64| *x)
    });
    let text = "state 'tracker' is held by 'first' and by 'second': one node holds a state, let the other read a value that the \
                first makes of it";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("second")));
    let text = mistake(|g, item| {
        let _ = g.state("tracker", || 0u64);
        g.task("first", &item, |x: &u64| *x)
    });
    assert_eq!(text, "no node holds state 'tracker': let one read it as `&mut state`, or remove it");
}

#[test]
fn states_and_feedback_are_for_pipelines() {
    let compile = |build: fn(&mut Graph) -> Value<u64>| {
        let mut g = Graph::new();
        let out = build(&mut g);
        g.output("out", &out);
        let error = g.compile().unwrap_err();
        assert!(error.is_invalid_graph());
        error.to_string()
    };
    let state = compile(|g| {
        let mut state = g.state("tracker", || 0u64);
        g.task("node", &mut state, |x: &mut u64| *x)
    });
    assert_eq!(state, "state 'tracker' goes from item to item, so it needs a Pipeline: build this graph in Pipeline::new");
    let feedback = compile(|g| {
        let before = g.feedback("before", || 0u64);
        let node = g.task("node", &*before, |x: &u64| *x);
        g.feed(before, &node);
        node
    });
    assert_eq!(feedback, "feedback 'before' goes from item to item, so it needs a Pipeline: build this graph in Pipeline::new");
}

#[test]
fn a_result_is_one_and_nobody_elses() {
    let twice = Pipeline::new("pipeline", &Ranked::default(), |g, item: Value<u64>| {
        let node = g.task("node", &item, |x: &u64| *x);
        (node, node)
    });
    assert_eq!(
        twice.unwrap_err().to_string(),
        "'node' is a result of the pipeline twice: return it once, and clone what you need"
    );
    let taken = mistake(|g, item| {
        let node = g.task("node", &item, |x: &u64| *x);
        g.task("taker", take(&node), |_: u64| ());
        node
    });
    assert_eq!(taken, "'taker' takes 'node' by value, but it is a result of the pipeline: read it by reference");
    let shared = mistake(|g, item| {
        let node = g.task("node", &item, |x: &u64| *x);
        g.future("sharer", &node, async |_: std::sync::Arc<u64>| Ok(()));
        node
    });
    let text = "'node' is a result of the pipeline, which is moved out, but the async node 'sharer' shares it as an Arc: return a \
                value that a node makes of it";
    assert_eq!(shared, text);
    let feedback = mistake(|g, item| {
        let before = g.feedback("before", || 0);
        let node = add(g, "node", 1, &item, &before);
        let before_too = *before;
        g.feed(before, &node);
        before_too
    });
    assert_eq!(feedback, "feedback 'before' cannot be a result, because it stays: return a value that a node makes of it");
}

#[test]
fn what_stays_is_not_taken() {
    let fed = mistake(|g, item| {
        let before = g.feedback("before", || 0);
        let node = add(g, "node", 1, &item, &before);
        g.feed(before, &node);
        g.task("taker", take(&node), |x: u64| x)
    });
    assert_eq!(fed, "'taker' takes 'node' by value, but it is fed back to a later item: read it by reference");
    let feedback = mistake(|g, item| {
        let before = g.feedback("before", || 0);
        let node = g.task("taker", (take(&*before), &item), |x: u64, _: &u64| x);
        g.feed(before, &node);
        node
    });
    let text = "'taker' takes feedback 'before' by value, but it stays until the next item has its own: read it by reference";
    assert_eq!(feedback, text);
}

#[test]
fn items_in_flight_are_enough() {
    let said = |made: anabranch::Result<Pipeline<u64, u64>>| made.unwrap_err().to_string();
    assert_eq!(said(chained(2).in_flight(0)), "0 items in flight are too few: an item needs one");
    assert_eq!(said(chained(2).cpus(0)), "the number of CPU nodes at once must be 1 or more, not 0");
    let lockstep = chained(3).beat(Beat::Lockstep).unwrap();
    let text = "2 items in flight are too few: in lockstep all 3 phases have an item, so in_flight must be 3 or more";
    assert_eq!(said(lockstep.clone().in_flight(2)), text);
    assert_eq!(said(chained(3).in_flight(2).unwrap().beat(Beat::Lockstep)), text);
    let far = Pipeline::new("far", &Ranked::default(), |g, item: Value<u64>| {
        let before = g.feedback("pose before", || 0);
        let first = add(g, "first", 1, &item, &before);
        let second = add(g, "second", 2, &first, &first);
        let third = add(g, "third", 3, &second, &second);
        g.feed(before, &third);
        third
    });
    let text = "2 items in flight are too few: the feedback 'pose before' is from 3 items before, so in_flight must be 3 or more";
    assert_eq!(said(far.and_then(|far| far.in_flight(2))), text);
    let many = said(chained(2).in_flight(u32::MAX));
    assert!(many.starts_with("the number of items in flight is 4294967295, the limit is "), "{many}");
}

#[test]
fn values_and_states_are_of_the_same_graph() {
    let mut other = Graph::new();
    let foreign = other.input::<u64>("x");
    let text = mistake(|g, item| add(g, "node", 1, &item, &foreign));
    assert!(text.starts_with("'node' uses a value of another graph"), "{text}");
    let text = mistake(|_, _| foreign);
    assert!(text.starts_with("the pipeline returns a value of another graph"), "{text}");
    let text = mistake(|g, item| {
        let before = g.feedback("before", || 0);
        let node = add(g, "node", 1, &item, &before);
        g.feed(before, &foreign);
        node
    });
    assert!(text.starts_with("feedback 'before' is fed a value of another graph"), "{text}");
    let mut state: State<u64> = other.state("tracker", || 0);
    let error = fault(|g, item| g.task("node", (&mut state, &item), |_: &mut u64, x: &u64| *x));
    let text = "'node' holds state 'tracker' of another graph: the node that holds a state is in the pipeline's own graph, and in \
                no loop or branch";
    assert_eq!((error.to_string().as_str(), error.node()), (text, Some("node")));
    let text = mistake(|g, item| {
        let mut state = g.state("tracker", || 0u64);
        let one = g.task("one", &item, |x: &u64| *x);
        g.repeat("loop", take(&one), times(2), |b, x| b.task("node", (&mut state, &x), |_: &mut u64, x: &u64| *x))
    });
    assert!(text.contains("node' holds state 'tracker' of another graph"), "{text}");
}

#[test]
fn the_graph_is_not_replaced() {
    let text = mistake(|g, _| {
        *g = Graph::new();
        g.task("node", (), || 1)
    });
    let expected =
        "the closure for the pipeline 'pipeline' replaces the graph that it is given: add to that graph, and do not replace it";
    assert_eq!(text, expected);
}

#[test]
fn names_are_unique() {
    let text = mistake(|g, item| {
        let (a, b) = (g.feedback("before", || 0), g.feedback("before", || 0));
        let node = add(g, "node", 1, &a, &b);
        g.feed(a, &item);
        g.feed(b, &item);
        node
    });
    assert_eq!(text, "two feedbacks are named 'before': rename one");
    let text = mistake(|g, item| {
        let (a, _) = (g.feedback("before", || 0), g.state("before", || 0));
        let node = add(g, "node", 1, &item, &a);
        g.feed(a, &item);
        node
    });
    assert_eq!(text, "a feedback and a state are named 'before': rename one");
}

#[test]
fn a_message_says_which_state_or_feedback_it_is_about() {
    // Seen to fail with messages that say `input`, and with the name of the graph's own feedback.
    let text = mistake(|g, _| {
        let before = g.feedback("before", || 0u64);
        g.node(&before).cost_us(1.0);
        *before
    });
    assert_eq!(text, "'before' is a feedback, not a node: it has no backend, command, cost or phase, and it waits for nothing");
    let mut other = Graph::new();
    let foreign = other.feedback("theirs", || 0);
    let text = mistake(|g, item| {
        let ours = g.feedback("ours", || 0);
        g.feed(foreign, &item);
        *ours
    });
    assert_eq!(text, "feedback 'theirs' is of another graph: feed it in the graph that made it");
    let text = mistake(|g, item| {
        let one = g.task("one", &item, |x: &u64| *x);
        g.repeat("loop", take(&one), times(2), |b, x| {
            let _ = b.state("tracker", || 0);
            b.task("node", &x, |x: &u64| *x)
        })
    });
    let expected = "state 'tracker' is declared in an inner graph, which has none: declare it in the pipeline's own graph";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn an_item_that_nothing_reads_is_said() {
    let text = mistake(|g, _| {
        let one = g.task("one", (), || 1u64);
        chain(g, &one, 1)
    });
    assert_eq!(text, "nothing reads the input 'the item': read it in a node, or remove it");
}

#[test]
fn a_result_that_something_else_may_hold_is_refused() {
    // Seen to be accepted without the check. The poll that takes such a result panicked.
    let step = |g: &mut Graph, x: Value<u64>| g.task("step", &x, |x: &u64| x + 1);
    let told = |name: &str, why: &str| {
        let result = format!("state 0 of '{name}' ('the item') is a result of the pipeline, which is moved out");
        format!("{result}, but {why}: return a value that a node makes of it")
    };
    let reads = "'loop' only reads what the state begins with";
    assert_eq!(mistake(|g, item| g.repeat("loop", &item, times(0), step)), told("loop", reads));
    let asked = |g: &mut Graph, x: Value<u64>| g.task("more", &x, |x: &u64| *x < 2);
    assert_eq!(mistake(|g, item| g.repeat("loop", &item, asked, step)), told("loop", reads));
    let chosen = mistake(|g, item| {
        let none = g.task("none", &item, |_: &u64| None);
        g.branch("branch", &none, &item).arm(step).join()
    });
    assert_eq!(chosen, told("branch", "'branch' only reads what the state begins with"));
    let shared = mistake(|g, item| {
        let waits = |g: &mut Graph, x: Value<u64>| g.future("waits", &x, async |x: std::sync::Arc<u64>| Ok(*x + 1));
        g.repeat("loop", take(&item), times(1), waits)
    });
    assert_eq!(shared, told("loop", "the async node 'loop/body/waits' shares it as an Arc"));
    let around = mistake(|g, item| {
        let outer = g.task("outer", &item, |x: &u64| *x);
        g.repeat("loop", take(&item), times(1), |_: &mut Graph, _| outer)
    });
    assert_eq!(around, told("loop", "'loop/body' gives state 0 of 'loop' ('the item') a value of the graph around"));
    let built = Pipeline::new("right", &Ranked::default(), |g, item| g.repeat("loop", take(&item), times(2), step)).unwrap();
    let results = block_on(Executor::inline().pipe(&built, stream::iter([1, 5])).map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(results, [3, 7]);
}

#[test]
fn a_feedback_is_not_fed_to_another() {
    // Seen to fail without the check. The copy would not be ordered after its source.
    let text = mistake(|g, item| {
        let (first, second) = (g.feedback("first", || 0), g.feedback("second", || 0));
        let out = add(g, "out", 1, &first, &second);
        let value = *first;
        g.feed(second, &value);
        let both = add(g, "both", 1, &out, &item);
        g.feed(first, &both);
        both
    });
    assert_eq!(text, "feedback 'first' cannot be fed to another: feed a value that a node makes of it");
}

#[test]
fn a_pipeline_has_no_ports_by_name() {
    // Seen to fail without the check. An output would leak a value for each item, and an input fail every
    // item.
    let text = mistake(|g, item| {
        let out = chain(g, &item, 1);
        g.output("out", &out);
        chain(g, &out, 1)
    });
    assert_eq!(text, "output 'out' in the graph of a pipeline: return the value from the closure instead");
    let text = mistake(|g, item| {
        let other = g.input::<u64>("other");
        add(g, "sum", 1, &item, &other)
    });
    assert_eq!(text, "input 'other' in the graph of a pipeline: items come in as the closure's second argument");
}

#[test]
fn a_state_of_a_graph_that_is_gone_is_refused() {
    // The next graph may have its address, so the type is checked, too. Seen to fail without both checks.
    for _ in 0..100 {
        let mut state = {
            let mut gone = Graph::new();
            gone.state("state", Vec::<u8>::new)
        };
        let error = fault(|g, item| {
            let mut count = g.state("count", || 0u64);
            let counted = g.task("counted", (&mut count, &item), |count: &mut u64, x: &u64| *count + x);
            g.task("node", (&mut state, &counted), |state: &mut Vec<u8>, x: &u64| state.len() as u64 + x)
        });
        assert!(error.to_string().starts_with("'node' holds state 'state' of another graph"), "{error}");
    }
}

#[test]
fn a_depth_is_from_1_on() {
    let error = chained(2).phases(Phases::Auto { depth: 0 }).unwrap_err();
    assert_eq!(error.to_string(), "the depth must be from 1 to 1024, not 0");
}

#[test]
fn the_number_of_items_in_flight_of_a_stream_of_runs_is_checked() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let out = chain(&mut g, &x, 1);
    g.output("out", &out);
    let (plan, exec) = (g.compile().unwrap(), Executor::inline());
    let none = || stream::empty::<anabranch::Inputs>();
    assert_eq!(exec.run_stream(&plan, none(), 0).unwrap_err().to_string(), "0 items in flight are too few: an item needs one");
    let many = exec.run_stream_unordered(&plan, none(), u32::MAX).unwrap_err().to_string();
    assert!(many.starts_with("the number of items in flight is 4294967295, the limit is "), "{many}");
    block_on(exec.idle()).unwrap();
}

#[test]
fn a_node_waits_for_an_item_that_can_be_over() {
    let waits = |items: u32, is_forward: bool| {
        let pipeline = super::each(|g, item: Value<u64>| {
            let names = ["a", "b", "c"];
            let [a, b, c] = names.map(|name| g.task(name, &item, |item: &u64| *item));
            let (source, target) = if is_forward { (&a, &c) } else { (&c, &a) };
            g.node(target).after_item(source, items);
            g.task("sum", (&a, &b, &c), |a: &u64, b: &u64, c: &u64| a + b + c)
        });
        pipeline.in_flight(5).and_then(|pipeline| pipeline.beat(Beat::Lockstep))
    };
    let message = |items, is_forward| waits(items, is_forward).unwrap_err().to_string();
    assert_eq!(
        message(1, false),
        "in lockstep 'a' cannot wait for 'c' of 1 item before, because it begins then: let it wait for 2 before, or choose Beat::Elastic"
    );
    waits(2, false).unwrap().verify().unwrap();
    assert_eq!(message(4, true), "5 items in flight are too few: in lockstep 'c' waits for 'a', so in_flight must be 6 or more");
    waits(3, true).unwrap().verify().unwrap();
    let zero = mistake(|g, item| {
        let [a, b] = ["a", "b"].map(|name| g.task(name, &item, |item: &u64| *item));
        g.node(&b).after_item(&a, 0);
        g.task("sum", (&a, &b), |a: &u64, b: &u64| a + b)
    });
    assert_eq!(zero, "'b' waits for an item 0 items before: give 1 or more, or use `after` for an edge within an item");
    let mut g = Graph::new();
    let [a, b] = ["a", "b"].map(|name| g.task(name, (), || 1_u64));
    g.node(&b).after_item(&a, 1);
    ["x", "y"].into_iter().zip([a, b]).for_each(|(name, value)| g.output(name, &value));
    let plain = g.compile().unwrap_err().to_string();
    assert_eq!(
        plain,
        "the wait of 'b' for an earlier item goes from item to item, so it needs a Pipeline: build this graph in Pipeline::new"
    );
}
