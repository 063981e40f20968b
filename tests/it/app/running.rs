//! Descriptions that run as pipelines: bodies by the names of the passes.

use anabranch::app::App;
use anabranch::graph::Bodies;
use anabranch::{Graph, HostStream, Name, Pipeline, Ranked, Value};
use futures::{TryStreamExt, stream};

use super::{Case, only, sample};
use crate::support::{block_on, executors};

/// The pipeline of the sample `Piped`: `source` takes the item, and `filter` returns three times the item.
/// `track` adds the result of `sink` for the previous item. `sink` adds the raw item and the number of items
/// so far.
fn tracking(app: &App) -> anabranch::Result<Pipeline<u64, u64>> {
    type One = Value<u64>;
    Pipeline::new("tracking", &Ranked::default(), |g, frame: One| {
        let before = g.feedback("sink before", || 0);
        let last = *before;
        let same = |g: &mut Graph, name: &Name, x: One| g.task(name, &x, |x: &u64| *x);
        let mut bodies = Bodies::new()
            .node("top.source.SETUP", move |_: &mut Graph, _: &Name, ()| frame)
            .node("top.source.PROCESS", |g: &mut Graph, name: &Name, x: One| g.kernel(name, &x, |_: &mut HostStream, x: &u64| *x))
            .node("top.filter.PROCESS", |g: &mut Graph, name: &Name, x: One| {
                g.kernel(name, &x, |_: &mut HostStream, x: &u64| 3 * x)
            })
            .node("top.track.PROCESS", move |g: &mut Graph, name: &Name, x: One| {
                g.task(name, (&x, &last), |x: &u64, before: &u64| x + before)
            })
            .node("top.sink.SETUP", |g: &mut Graph, name: &Name, (tracked, raw): (One, One)| {
                g.task(name, (&tracked, &raw), |tracked: &u64, raw: &u64| tracked + raw)
            })
            .node("top.sink.PROCESS", |g: &mut Graph, name: &Name, x: One| {
                let mut count = g.state("count", || 0);
                g.task(name, (&mut count, &x), |count: &mut u64, x: &u64| {
                    *count += 1;
                    x + *count
                })
            });
        for name in ["source.TEARDOWN", "filter.SETUP", "filter.TEARDOWN", "track.SETUP", "track.TEARDOWN", "sink.TEARDOWN"] {
            bodies = bodies.node(format!("top.{name}"), same);
        }
        g.add_shape(&app.shape(only(app)), &bodies);
        let sunk = g.value_named("top.sink.TEARDOWN");
        g.feed(before, &sunk);
        sunk
    })
}

#[test]
fn a_description_runs_over_items_in_its_phases() {
    // The example of `docs/app-json.md`. Seen to fail with a graph that lacks the phases of its shape.
    let pipeline = tracking(&sample("Piped")).unwrap();
    assert_eq!(pipeline.depth(), 2);
    assert_eq!(["top.filter.SETUP", "top.track.SETUP"].map(|name| pipeline.phase_of(name)), [Some(1), Some(2)]);
    // The item takes the place of the first pass, which has no node.
    assert_eq!(pipeline.phase_of("top.source.SETUP"), None);
    pipeline.verify().unwrap();
    let mut sunk = 0;
    let expected: Vec<u64> = (1..=20)
        .map(|item| {
            sunk += 3 * item + item + item;
            sunk
        })
        .collect();
    for exec in executors() {
        let results: Vec<u64> = block_on(exec.pipe(&pipeline, stream::iter(1..=20)).try_collect()).unwrap();
        assert_eq!(results, expected, "{exec:?}");
    }
}

#[test]
fn what_does_not_fit_is_an_error_of_the_pipeline() {
    // Seen to fail with `add_shape` that forgets its mistake, and with a value of any type.
    let app = Case::new().open().unwrap();
    let said = |build: &dyn Fn(&mut Graph, Bodies) -> Value<u64>| {
        let next = |g: &mut Graph, name: &Name, x: Value<u64>| g.task(name, &x, |x: &u64| 10 * x);
        let made = Pipeline::new("x", &Ranked::default(), |g, item: Value<u64>| {
            let bodies = Bodies::new()
                .node("top.a.SETUP", move |_: &mut Graph, _: &Name, ()| item)
                .node("top.a.TEARDOWN", next)
                .node("top.b.SETUP", next);
            build(g, bodies)
        });
        let error = made.unwrap_err();
        assert!(error.is_invalid_graph(), "{error}");
        (error.node().map(ToOwned::to_owned).unwrap(), error.to_string())
    };
    let shape = app.shape(only(&app));
    let last = "top.b.TEARDOWN";
    let full = |bodies: Bodies| bodies.node(last, |g: &mut Graph, name: &Name, x: Value<u64>| g.task(name, &x, |x: &u64| *x));
    let (node, text) = said(&|g, bodies| {
        g.add_shape(&shape, &bodies);
        g.value_named(last)
    });
    assert_eq!((&node[..], &text[..]), (last, "node 'top.b.TEARDOWN' has no body: give one for its command 'top.b.TEARDOWN'"));
    let (node, text) = said(&|g, bodies| {
        g.add_shape(&shape, &full(bodies));
        g.value_named("top.b.TEARDWON")
    });
    let expected =
        "node 'top.b.TEARDWON' is asked for its value: there is no node named 'top.b.TEARDWON'; did you mean 'top.b.TEARDOWN'?";
    assert_eq!((&node[..], &text[..]), ("top.b.TEARDWON", expected));
    let (_, text) = said(&|g, bodies| {
        g.add_shape(&shape, &full(bodies));
        let wrong = g.value_named::<f32>(last);
        g.task("rounded", &wrong, |x: &f32| *x as u64)
    });
    assert_eq!(text, "node 'top.b.TEARDOWN' gives a `u64`, and a `f32` is asked for");
    let (node, _) = said(&|g, bodies| {
        g.add_shape(&shape, &full(bodies));
        g.value_named("top.b.SETUP")
    });
    assert_eq!(node, last, "nobody reads it");
}
