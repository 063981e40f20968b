//! A round trip through JSON changes nothing.

use anabranch::graph::{
    Backend, Communication, Control, Edge, EdgeKind, Exchange, Memory, NodeId, NodeShape, Peer, Ranks, Shape, above, times,
};
use anabranch::policy::Single;
use anabranch::{Graph, HostStream, Value, take};
use std::sync::Arc;

use crate::support::Dice;

/// Panics if a shape does not survive a round trip through its text.
fn comes_back(shape: &Shape, what: &str) {
    let text = shape.to_json();
    let again = Shape::from_json(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert!(again == *shape, "{what}:\n{text}\n{shape:?}\n{again:?}");
    assert_eq!(again.to_json(), text, "{what}");
}

/// Adds nodes to a graph that read `known` values of it and of the graphs around it.
fn grow(g: &mut Graph, dice: &mut Dice, known: &mut Vec<Value<u64>>, depth: usize) {
    for number in 0..1 + dice.below(4) {
        let [a, b] = [0; 2].map(|_| known[dice.below(known.len())]);
        let name = format!("n{number}");
        let value = match dice.below(if depth > 0 { 8 } else { 5 }) {
            0 => g.task(name, (), || 1),
            1 => g.kernel(name, &a, |_: &mut HostStream, a: &u64| *a),
            2 => g.task(name, (&a, &b), |a: &u64, b: &u64| a + b),
            3 => g.task(name, take(&a), |a: u64| a),
            4 => g.future(name, &a, async |a: Arc<u64>| Ok(*a)),
            5 => looped(g, dice, name, [a, b], known, depth - 1),
            6 => counted(g, dice, name, [a, b], known, depth - 1),
            _ => {
                let which = g.task(format!("{name} which"), &b, |b: &u64| *b as usize % 2);
                let mut branch = g.branch(name, &which, take(&a));
                for _ in 0..dice.below(3) {
                    branch = branch.arm(|a, x| inner(a, dice, x, known, depth - 1));
                }
                branch.join()
            }
        };
        decorate(g, dice, &value, known);
        known.push(value);
    }
}

/// Sets more properties of a node that the file has besides its name.
fn decorate(g: &mut Graph, dice: &mut Dice, value: &Value<u64>, known: &[Value<u64>]) {
    let (draw, node) = (dice.below(8), g.node(value));
    match draw {
        0 => _ = node.cost_us(f64::from_bits((dice.below(usize::MAX) as u64 >> 2) % 1e12_f64.to_bits())),
        1 => _ = node.command(["copy-up", "n0", "\"\\\n\u{1F980}"][dice.below(3)]),
        2 => _ = node.devices([&[][..], &[0], &[3, 1], &[1023]][dice.below(4)]),
        3 => _ = node.backend([Backend::Cpu, Backend::Mixed, Backend::Gpu][dice.below(3)]),
        4 => _ = node.after(&known[dice.below(known.len())]),
        _ => {}
    }
    if dice.below(4) == 0 && known.len() > 1 {
        // An edge to a node whose readers may have been added before.
        let pair = dice.below(known.len() - 1);
        g.order(&known[pair], &known[pair + 1]);
    }
}

fn looped(
    g: &mut Graph,
    dice: &mut Dice,
    name: String,
    [a, b]: [Value<u64>; 2],
    known: &[Value<u64>],
    depth: usize,
) -> Value<u64> {
    let count = [0, 1, 5, 2_000_000_000, u64::MAX][dice.below(5)];
    let (x, _) = g.repeat(name, (take(&a), &b), times(count), |g, (x, y)| (inner(g, dice, x, known, depth), y));
    limit(g, dice, &x);
    x
}

fn counted(
    g: &mut Graph,
    dice: &mut Dice,
    name: String,
    [a, b]: [Value<u64>; 2],
    known: &[Value<u64>],
    depth: usize,
) -> Value<u64> {
    let far = dice.below(2) == 0;
    let goes_on = g.task(format!("{name} goes on"), (), || above(1.0, 2.0));
    let ask = |c: &mut Graph, (x, _): (Value<u64>, Value<u64>)| {
        if far {
            goes_on
        } else {
            c.task("ask", (&x, &goes_on), |x: &u64, _: &anabranch::graph::Above<f64>| above(*x as f64, 3.0))
        }
    };
    let (x, _) = g.repeat(name, (&a, &b), ask, |g, (x, y)| (y, inner(g, dice, x, known, depth)));
    limit(g, dice, &x);
    x
}

fn limit(g: &mut Graph, dice: &mut Dice, value: &Value<u64>) {
    let max = [0, 1, 3, u64::MAX][dice.below(4)];
    if dice.below(2) == 0 {
        g.node(value).max_iterations(max);
    }
}

fn inner(g: &mut Graph, dice: &mut Dice, state: Value<u64>, around: &[Value<u64>], depth: usize) -> Value<u64> {
    let mut known = around.to_vec();
    known.push(state);
    let first = known.len() - 1;
    grow(g, dice, &mut known, depth);
    // All values are read. A node for its effect returns nothing.
    g.task("effect", &known[first..], |_: anabranch::graph::Each<u64>| ());
    known[first + dice.below(known.len() - first)]
}

#[test]
fn every_graph_that_compiles_comes_back() {
    // Seen to fail (seed 154) with edges that are restored node by node.
    let mut compiled = 0;
    for seed in 0..3_000 {
        let mut dice = Dice::new(seed);
        let mut g = Graph::new();
        let mut known = vec![g.input::<u64>("x")];
        grow(&mut g, &mut dice, &mut known, 2);
        g.task("all", &known[..], |_: anabranch::graph::Each<u64>| ());
        if dice.below(2) == 0 {
            g.output("out", &known[known.len() - 1]);
        }
        let Ok(plan) = g.compile_with(&Single) else { continue };
        compiled += 1;
        comes_back(g.shape(), &format!("seed {seed}"));
        comes_back(plan.schedule().shape(), &format!("compiled, seed {seed}"));
        plan.schedule().inner().iter().for_each(|inner| comes_back(inner.schedule().shape(), &format!("inside, seed {seed}")));
    }
    assert!(compiled > 300, "{compiled}");
}

/// Lets a node run on some ranks, and exchange values with others.
fn place(dice: &mut Dice, node: &mut NodeShape) {
    node.ranks = [None, None, Some(Ranks::Same), Some(Ranks::Each), Some(Ranks::One(7))][dice.below(5)];
    node.bytes = [None, Some(0), Some(u64::MAX)][dice.below(3)];
    let mut peer = || [Peer::rank(3), Peer::next(), Peer::ring(-2), Peer::table([Some(1), None])][dice.below(4)].clone();
    let exchanges = [
        Exchange::Barrier,
        Exchange::AllGather,
        Exchange::AllToAll,
        Exchange::AllReduce { operator: "+".into() },
        Exchange::ReduceScatter { operator: "max".into() },
        Exchange::Broadcast { root: 2 },
        Exchange::SendTo { to: peer() },
        Exchange::RecvFrom { from: peer() },
        Exchange::SendRecv { to: peer(), from: peer() },
    ];
    let exchange = exchanges.into_iter().nth(dice.below(18));
    node.communication = exchange.map(|exchange| Arc::new(Communication::new(exchange)));
}

#[test]
fn what_a_graph_exchanges_comes_back() {
    // Seen to fail without the types of the values, and of the operator.
    let mut g = Graph::new();
    let x = g.task("x", (), || vec![1.0_f32; 8]);
    g.node(&x).rank(1).bytes(32);
    let y = g.task("y", (), || 2_u8);
    g.node(&y).per_rank();
    let sum = g.all_reduce("sum", &y, anabranch::scope::Sum);
    _ = g.send_to("send", &x, Peer::table([None, Some(0)]));
    let got = g.recv_from::<Vec<f32>>("receive", Peer::ring(1));
    g.output("sum", &sum);
    g.output("got", &got);
    comes_back(g.shape(), "a graph that communicates");
}

#[test]
fn what_cannot_be_exchanged_is_named_with_its_place() {
    let fault = |node: &str| {
        Shape::from_json(&format!("{{\"nodes\": [{{\"name\": \"a\", \"backend\": \"cpu\", {node}}}]}}")).unwrap_err().to_string()
    };
    insta::assert_snapshot!(fault(r#""exchange": "gossip""#), @"nodes[0].exchange: unknown variant `gossip`, expected one of `all-reduce`, `all-gather`, `reduce-scatter`, `broadcast`, `all-to-all`, `barrier`, `send-recv`, `send-to`, `recv-from` at line 1 column 63");
    insta::assert_snapshot!(fault(r#""exchange": {"send-to": {"to": "left"}}"#), @r#"nodes[0].exchange.send-to.to: expected a rank, a list of ranks and nulls, {"shift": 1} or {"beyond": 0} at line 1 column 81"#);
    insta::assert_snapshot!(fault(r#""exchange": {"broadcast": {}}"#), @"nodes[0].exchange.broadcast: missing field `root` at line 1 column 71");
    insta::assert_snapshot!(fault(r#""ranks": "some""#), @r#"nodes[0].ranks: expected the number of a rank, "same" or "each" at line 1 column 59"#);
    insta::assert_snapshot!(fault(r#""of": "f64""#), @"nodes[0]: `of` and `operator` are for a node with an `exchange` at line 1 column 55");
}

/// Makes a shape by hand. With `states`, it is the inside of a loop or branch of that many states.
fn shape(dice: &mut Dice, states: Option<u32>, depth: usize) -> Shape {
    let mut shape = Shape::new();
    let ids: Vec<NodeId> = (0..dice.below(6)).map(|node| shape.node(format!("n{node}"), Backend::Cpu)).collect();
    let mut reads = vec![0; ids.len()];
    for _ in 0..dice.below(3 * ids.len() + 1) {
        let mut ends = [dice.below(ids.len()), dice.below(ids.len())];
        ends.sort_unstable();
        let [source, target] = ends.map(|end| ids[end]);
        let memory = [None, Some(Memory::Cpu), Some(Memory::Gpu)][dice.below(3)];
        let kind = EdgeKind::Data { output: dice.below(2) as u32, memory, metadata: dice.below(3) == 0 };
        match (states, dice.below(4)) {
            (Some(states), 0) if states > 0 => shape.read_state(dice.below(states as usize) as u32, target),
            _ if source == target => continue,
            (_, 1) => {
                shape.order(source, target);
                continue;
            }
            _ => shape.edge(Edge::new(source, target, kind)),
        }
        reads[target.index()] += 1;
    }
    ids.iter().for_each(|&node| place(dice, &mut shape.nodes_mut()[node.index()]));
    for (&node, &reads) in ids.iter().zip(&reads) {
        let max = [None, Some(0), Some(1), Some(7)][dice.below(4)];
        let control = match dice.below(if depth > 0 { 5 } else { 1 }) {
            1 | 2 => {
                let mut inner = || Arc::new(self::shape(dice, Some(reads), depth - 1));
                let (body, asked) = (inner(), inner());
                let condition = (dice.below(2) == 0).then_some(asked);
                Control::Repeat { condition, body, iterations: dice.below(3) as u64, max_iterations: max }
            }
            3 => {
                let arms: Vec<_> =
                    (0..dice.below(3)).map(|_| Arc::new(self::shape(dice, Some(reads.max(1) - 1), depth - 1))).collect();
                let taken = (!arms.is_empty() && dice.below(2) == 0).then(|| dice.below(arms.len()) as u32);
                Control::Branch { arms, taken }
            }
            _ => continue,
        };
        let first = u32::from(matches!(control, Control::Branch { .. }));
        shape.nodes_mut()[node.index()].control = Some(Arc::new(control));
        (first..reads).filter(|_| dice.below(3) == 0).for_each(|input| shape.take_input(node, input));
    }
    match dice.below(4) {
        0 => shape.no_outputs(),
        1 if !ids.is_empty() => shape.output(ids[dice.below(ids.len())], 0),
        _ => {}
    }
    shape
}

#[test]
fn shapes_made_by_hand_come_back() {
    // Seen to fail (seed 1) with a writer that leaves empty outputs, takes and the order of edges out.
    let mut scheduled = 0;
    for seed in 0..3_000 {
        let shape = shape(&mut Dice::new(seed), None, 2);
        comes_back(&shape, &format!("seed {seed}"));
        // Some takes close a cycle.
        scheduled += usize::from(shape.schedule_with(&Single).is_ok());
    }
    assert!(scheduled > 1_000, "{scheduled}");
}

#[test]
fn the_order_of_edges_is_checked() {
    // Seen to fail with a place that may be given twice, and a list that may be too short.
    let text = |order: &str| {
        format!(
            r#"{{"nodes": [{{"name": "a", "backend": "cpu"}}, {{"name": "b", "backend": "cpu", "inputs": [{{"node": "a"}}, {{"node": "a"}}],
            "after": ["a"]}}], "edges": [["a", "b"]], "edge_order": {order}}}"#
        )
    };
    let fault = |order: &str| Shape::from_json(&text(order)).unwrap_err().to_string();
    assert!(Shape::from_json(&text("[1, 2, 3, 0]")).is_ok());
    assert_eq!(fault("[0]"), "edge_order: gives 1 places for the 4 entries of `inputs`, `after` and `edges`: give one for each");
    assert_eq!(fault("[0, 1, 2, 4]"), "edge_order: the place 4, counted from 0, is out of range: there are 4 entries");
    assert_eq!(fault("[0, 1, 2, 2]"), "edge_order: the place 2 is given twice: give each entry a place of its own");
    assert_eq!(
        fault("[1, 0, 2, 3]"),
        "edge_order: the inputs of a node are out of order: give each a later place than the one before it"
    );
}
