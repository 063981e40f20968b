//! The messages for mistakes in loops and branches: the node, by its path, the state, and the change to make.

use std::sync::Arc;

use anabranch::graph::{Shape, times};
use anabranch::policy::{Policy, Single};
use anabranch::{Error, Graph, Value, take};

type Numbers = Vec<f64>;

/// Returns the error of the graph that `build` makes from a value, and the node that the error names.
fn said(build: impl FnOnce(&mut Graph, Value<Numbers>) -> Value<Numbers>) -> (String, Option<String>) {
    let mut g = Graph::new();
    let x = g.task("x", (), || vec![1.0]);
    let y = build(&mut g, x);
    g.output("y", &y);
    named(&g.compile_with(&Single).unwrap_err())
}

fn named(error: &Error) -> (String, Option<String>) {
    assert!(error.is_invalid_graph(), "{error}");
    (error.to_string(), error.node().map(str::to_owned))
}

fn grown(g: &mut Graph, name: &'static str, x: &Value<Numbers>) -> Value<Numbers> {
    g.task(name, take(x), |x: Numbers| x)
}

fn copied(g: &mut Graph, name: &'static str, x: &Value<Numbers>) -> Value<Numbers> {
    g.task(name, x, |x: &Numbers| x.clone())
}

#[test]
fn a_cycle_that_take_closes_names_who_takes_and_who_reads() {
    // Seen to fail with the cycle alone, as if one of its edges could be removed.
    let (message, node) = said(|g, x| {
        let y = grown(g, "y", &x);
        g.task("z", (&x, &y), |x: &Numbers, y: &Numbers| [x.clone(), y.clone()].concat())
    });
    let expected = "'y' takes 'x' by value, so it comes after 'z', which reads it too: that closes the cycle 'y' -> 'z' -> 'y'. \
         Let 'y' read 'x' by reference, or 'z' not wait for 'y'";
    assert_eq!((&*message, node.as_deref()), (expected, Some("y")));
    let (message, node) = said(|g, x| {
        g.repeat("loop", take(&x), times(1), |b, x| {
            let y = grown(b, "y", &x);
            b.task("z", (&x, &y), |x: &Numbers, y: &Numbers| [x.clone(), y.clone()].concat())
        })
    });
    assert!(
        message.starts_with("in 'loop/body': 'y' takes state 0 of 'loop' ('x') by value, so it comes after 'z'"),
        "{message}"
    );
    assert_eq!(node.as_deref(), Some("loop/body/y"));
    // A cycle of edges alone keeps its plain message.
    let (message, _) = said(|g, x| {
        let y = grown(g, "y", &x);
        let z = copied(g, "z", &y);
        g.order(&z, &y);
        z
    });
    assert_eq!(message, "the nodes 'y' -> 'z' -> 'y' wait for each other in a cycle: remove one of these edges");
}

#[test]
fn a_state_that_cannot_be_taken_is_named_with_what_it_was_given() {
    // Seen to fail with bare names: two nodes named 'step' could not be told apart.
    let read = "only reads what the state begins with: give that to it as `take(&value)` (in JSON, \"take\": true)";
    let inner = said(|g, x| {
        g.repeat("outer", &x, times(2), |b, x| {
            let x = copied(b, "step", &x);
            b.repeat("inner", &x, times(2), |b, x| grown(b, "step", &x))
        })
    });
    let step = "outer/body/inner/body/step";
    let expected = format!("'{step}' takes state 0 of 'inner' ('step') by value, but 'outer/body/inner' {read}");
    assert_eq!(inner, (expected, Some(step.into())));
    let state_of_state =
        said(|g, x| g.repeat("outer", take(&x), times(2), |b, x| b.repeat("inner", &x, times(2), |b, x| grown(b, "step", &x))));
    let expected = format!("'{step}' takes state 0 of 'inner' (state 0 around it) by value, but 'outer/body/inner' {read}");
    assert_eq!(state_of_state, (expected, Some(step.into())));
    let captured = said(|g, x| {
        g.repeat("loop", take(&x), times(2), |b, s| {
            let y = copied(b, "deep", &x);
            b.task("step", (take(&s), &y), |s: Numbers, y: &Numbers| [s, y.clone()].concat())
        })
    });
    let expected = "'loop' takes 'x' by value, and 'loop/body/deep' in it reads it too: let 'loop/body/deep' read the state that 'loop' makes of it";
    assert_eq!(captured, (expected.into(), Some("loop/body/deep".into())));
}

#[test]
fn what_a_body_gives_for_a_state_that_is_taken_is_named() {
    // Seen to fail, each, with one message for all: that the loop may share it.
    let two = |give: fn(&mut Graph, Value<Numbers>, Value<Numbers>) -> (Value<Numbers>, Value<Numbers>)| {
        said(|g, x| {
            let y = copied(g, "y", &x);
            let z = g.task("z", (), || vec![2.0]);
            g.repeat("loop", (take(&y), take(&z)), times(2), |b, (y, z)| give(b, y, z)).0
        })
    };
    let (message, node) = two(|b, y, z| {
        let y = grown(b, "step", &y);
        let next = copied(b, "next", &y);
        b.future("look", &next, async |_: Arc<Numbers>| Ok(()));
        (next, z)
    });
    let expected = "'loop/body/step' takes state 0 of 'loop' ('y') by value, but 'loop/body' gives 'loop/body/next' for it, which the async \
         node 'loop/body/look' shares as an Arc: give one that nothing else holds";
    assert_eq!((&*message, node.as_deref()), (expected, Some("loop/body/step")));
    let (message, _) = two(|b, y, z| {
        let next = grown(b, "step", &y);
        b.future("look", &z, async |_: Arc<Numbers>| Ok(()));
        (z, next)
    });
    let expected = "'loop/body/step' takes state 0 of 'loop' ('y') by value, but 'loop/body' gives state 1 for it, and the async node \
         'loop/body/look' shares it as an Arc: read it by reference instead";
    assert_eq!(message, expected);
    let around = said(|g, x| {
        let y = copied(g, "y", &x);
        g.repeat("loop", take(&y), times(2), |b, y| {
            b.task("eat", take(&y), |_: Numbers| ());
            x
        })
    });
    let expected = "'loop/body/eat' takes state 0 of 'loop' ('y') by value, but 'loop/body' gives state 0 of 'loop' \
         ('y') a value of the graph around: give one that 'loop/body' makes";
    assert_eq!(around.0, expected);
}

/// Leaves the nodes named 'kernel' without a stream.
struct Careless;

impl Policy for Careless {
    fn name(&self) -> &str {
        "careless"
    }

    fn assign(&self, shape: &Shape) -> anabranch::Result<anabranch::policy::Assignment> {
        let mut assignment = anabranch::policy::Assignment::none(shape);
        let given = shape.ids().filter(|node| &*shape.nodes()[node.index()].name != "kernel");
        given.for_each(|node| assignment.set(node, 0));
        Ok(assignment)
    }
}

/// Makes a mistake in a graph, which may read a value of a graph around it.
type Bad = fn(&mut Graph, &Value<Numbers>);

/// All mistakes that name a node, which has this name.
fn mistakes() -> [(&'static str, Bad); 14] {
    [
        ("same", |g, _| {
            g.task("same", (), || ());
            g.task("same", (), || ());
        }),
        ("unread", |g, _| _ = g.task("unread", (), || 1)),
        ("cost", |g, _| {
            let cost = g.task("cost", (), || ());
            g.node(&cost).cost_us(-1.0);
        }),
        ("twice", |g, _| {
            let twice = g.task("twice", (), || ());
            g.node(&twice).devices([1, 1]);
        }),
        ("far", |g, _| {
            let far = g.task("far", (), || ());
            g.node(&far).devices([5000]);
        }),
        ("self", |g, _| {
            let own = g.task("self", (), || ());
            g.order(&own, &own);
        }),
        ("a", |g, _| {
            let a = g.task("a", (), || ());
            let b = g.task("b", &a, |_: &()| ());
            g.order(&b, &a);
        }),
        ("eat", |g, x| {
            let y = copied(g, "y", x);
            g.task("eat", take(&y), |_: Numbers| ());
            g.future("look", &y, async |_: Arc<Numbers>| Ok(()));
        }),
        ("second", |g, x| {
            let y = copied(g, "y", x);
            let _ = ["first", "second"].map(|name| g.task(name, take(&y), |_: Numbers| ()));
        }),
        ("both", |g, x| {
            let y = copied(g, "y", x);
            g.task("both", (take(&y), &y), |_: Numbers, _: &Numbers| ());
        }),
        ("take", |g, x| _ = g.task("take", take(x), |_: Numbers| ())),
        ("foreign", |g, _| {
            let x = Graph::new().input::<u64>("x");
            g.task("foreign", &x, |_: &u64| ());
        }),
        ("task", |g, _| {
            let task = g.task("task", (), || ());
            g.node(&task).max_iterations(1);
        }),
        ("kernel", |g, _| _ = g.kernel("kernel", (), |_: &mut anabranch::HostStream| ())),
    ]
}

#[test]
fn mistakes_two_graphs_deep_name_the_node_by_its_path() {
    // Seen to fail with bare names, and with nodes that some errors did not name at all.
    for (name, bad) in mistakes() {
        let mut g = Graph::new();
        let x = g.task("x", (), || vec![1.0]);
        let y = g.repeat(
            "loop",
            &x,
            |c, y| {
                let no = c.task("no", &y, |_: &Numbers| false);
                let which = c.task("which", (), || 0usize);
                let no = c.branch("fork", &which, &no).arm(|_, no| no).arm(|a, no| {
                    bad(a, &x);
                    no
                });
                no.join()
            },
            |_, y| y,
        );
        g.output("y", &y);
        let error = g.compile_with(if name == "kernel" { &Careless } else { &Single }).unwrap_err();
        let path = format!("loop/condition/fork/arm 1/{name}");
        assert_eq!(error.node(), Some(&*path), "{error}");
        assert!(error.to_string().contains("loop/condition/fork/arm 1"), "{error}");
    }
}
