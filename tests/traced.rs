//! Spans of `tracing`: their work, their order, and the current span in bodies. All tests share one
//! subscriber, because workers use the global one. Each test looks only at its own spans.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};

use anabranch::exec::Tracing;
use anabranch::{BoxError, Engine, Executor, Flow, Function, Graph, Inputs, Op, Pipeline, Ranked, Value};
use futures::{StreamExt, stream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Span, Subscriber, info, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span that was opened.
#[derive(Clone, Default, Debug)]
struct Seen {
    name: &'static str,
    fields: HashMap<&'static str, String>,
    /// The names of the spans around it, the innermost first. A name includes the span's field `name` or
    /// `test`, if any.
    around: Vec<String>,
    follows: Vec<u64>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    /// By number. The registry reuses numbers for later spans.
    open: HashMap<u64, Seen>,
    closed: Vec<Seen>,
    /// The events, each with the spans around it.
    events: Vec<(String, Vec<String>)>,
}

struct Fields<'f>(&'f mut HashMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

fn label(seen: &Seen) -> String {
    let name = seen.fields.get("name").or_else(|| seen.fields.get("test")).or_else(|| seen.fields.get("item"));
    name.map_or_else(|| seen.name.to_owned(), |name| format!("{} {name}", seen.name))
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut seen = Seen { name: attributes.metadata().name(), ..Seen::default() };
        attributes.record(&mut Fields(&mut seen.fields));
        let mut collected = self.0.lock().unwrap();
        let around = ctx.span(id).unwrap().scope().skip(1);
        seen.around = around.map(|span| label(&collected.open[&span.id().into_u64()])).collect();
        collected.open.insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        record.record(&mut Fields(&mut self.0.lock().unwrap().open.get_mut(&id.into_u64()).unwrap().fields));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        self.0.lock().unwrap().open.get_mut(&id.into_u64()).unwrap().follows.push(follows.into_u64());
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        let mut collected = self.0.lock().unwrap();
        let around = ctx.event_scope(event).into_iter().flatten();
        let around = around.map(|span| label(&collected.open[&span.id().into_u64()])).collect();
        collected.events.push((fields["message"].clone(), around));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut collected = self.0.lock().unwrap();
        let seen = collected.open.remove(&id.into_u64()).unwrap();
        collected.closed.push(seen);
    }
}

impl Collector {
    fn global() -> &'static Self {
        static GLOBAL: OnceLock<Collector> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            let collector = Self::default();
            let subscriber = tracing_subscriber::registry().with(collector.clone());
            tracing::subscriber::set_global_default(subscriber).unwrap();
            collector
        })
    }

    /// Returns the spans inside a test's span, and how many of them are open.
    fn of(&self, test: &str) -> (Vec<Seen>, usize) {
        let root = format!("request {test}");
        let collected = self.0.lock().unwrap();
        let is_own = |seen: &&Seen| seen.around.last() == Some(&root);
        let open = collected.open.values().filter(is_own);
        let all = open.clone().chain(collected.closed.iter().filter(is_own));
        (all.cloned().collect(), open.count())
    }

    fn around_event(&self, message: &str) -> Vec<Vec<String>> {
        let collected = self.0.lock().unwrap();
        collected.events.iter().filter(|event| event.0 == message).map(|event| event.1.clone()).collect()
    }
}

fn executors() -> [Executor; 3] {
    [0, 1, 2].map(|workers| Executor::builder().workers(workers).observer(Arc::new(Tracing::new())).build().unwrap())
}

fn run_in<F: Future>(test: &'static str, future: impl FnOnce() -> F) -> F::Output {
    Collector::global();
    let request = info_span!("request", test);
    // The future is made in the span, and not polled in it.
    let future = request.in_scope(future);
    futures::executor::block_on(future)
}

async fn twice_pending() {
    for _ in 0..2 {
        let mut is_first = true;
        futures::future::poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                cx.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(())
        })
        .await;
    }
}

#[test]
fn what_nodes_log_is_in_their_span_their_run_and_the_request() {
    // Seen to fail without the origin of runs.
    for exec in executors() {
        let mut g = Graph::new();
        let a = g.task("decode", (), || {
            info!("from decode");
            1u64
        });
        let b = g.future("fetch", &a, async |a: Arc<u64>| {
            twice_pending().await;
            info!("from fetch");
            Ok::<_, BoxError>(*a)
        });
        g.output("b", &b);
        let plan = g.compile().unwrap();
        run_in("nodes", || exec.run(&plan, Inputs::new())).unwrap();
        drop(exec);
    }
    let collector = Collector::global();
    for node in ["decode", "fetch"] {
        let around = collector.around_event(&format!("from {node}"));
        let expected = [format!("node {node}"), "run run".to_owned(), "request nodes".to_owned()];
        assert_eq!(around, vec![expected.to_vec(); 3]);
    }
    let (spans, open) = collector.of("nodes");
    assert_eq!((spans.len(), open), (3 * 3, 0), "a run and two nodes for each executor, and all are closed: {spans:#?}");
    assert!(spans.iter().all(|seen| seen.fields.contains_key("wait_us") && !seen.fields.contains_key("ended")));
    assert!(Span::current().is_none(), "nothing is left entered");
}

#[test]
fn what_fails_or_is_cancelled_says_so() {
    for exec in executors() {
        let mut g = Graph::new();
        let a = g.try_task("fails", (), || Err::<u64, _>("no".into()));
        g.output("a", &a);
        let plan = g.compile().unwrap();
        run_in("failing", || exec.run(&plan, Inputs::new())).unwrap_err();
    }
    let (spans, open) = Collector::global().of("failing");
    assert_eq!((spans.len(), open), (6, 0));
    assert!(spans.iter().all(|seen| seen.fields["ended"] == "failed"), "{spans:#?}");
}

#[test]
fn items_are_in_their_run_and_nodes_in_their_item() {
    for exec in executors() {
        let pipeline =
            Pipeline::new("squares", &Ranked::default(), |g, x: Value<u64>| g.task("square", &x, |x: &u64| x * x)).unwrap();
        let results = run_in("items", || exec.pipe(&pipeline, stream::iter(0..4)).collect::<Vec<_>>());
        assert_eq!(results.len(), 4);
        futures::executor::block_on(exec.idle()).unwrap();
    }
    let (spans, open) = Collector::global().of("items");
    assert_eq!((spans.len(), open), (3 * 9, 0));
    for seen in spans.iter().filter(|seen| seen.name == "node") {
        assert!(seen.around[0].starts_with("item "), "{seen:?}");
        assert_eq!(seen.around[1..], ["run squares", "request items"]);
    }
}

#[test]
fn operations_of_a_flow_and_calls_are_in_its_span() {
    for exec in executors() {
        let step = Function::new("step", |g: &mut Graph, x: Value<u64>| g.task("add", &x, |x: &u64| x + 1)).unwrap();
        let flow = run_in("flow", || {
            exec.flow(async |f: &Flow| {
                info!("from the flow");
                let x = f.task("begin", (), || 1u64);
                twice_pending().await;
                Ok(*f.get(&f.call(&step, &x)).await?)
            })
        });
        assert_eq!(flow.unwrap(), 2);
        drop(exec);
    }
    let collector = Collector::global();
    assert_eq!(collector.around_event("from the flow"), vec![["flow", "request flow"].map(str::to_owned).to_vec(); 3]);
    let (spans, open) = collector.of("flow");
    assert_eq!(open, 0);
    let add: Vec<_> = spans.iter().filter(|seen| label(seen) == "node add").map(|seen| seen.around.clone()).collect();
    assert_eq!(add.len(), 3);
    // The run of the call is in the operation that makes it.
    assert!(add.iter().all(|around| around[1..] == ["operation step", "flow", "request flow"].map(str::to_owned)), "{add:?}");
}

#[test]
fn an_operation_of_an_engine_follows_from_the_span_of_its_push() {
    // Seen to fail with the span that is current at the beginning of the operation.
    Collector::global();
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let x = engine.var("x", 0u64);
        let request = info_span!("request", test = "pushed");
        let number = request.id().unwrap().into_u64();
        let pushed = request.in_scope(|| {
            let write = Op::task("write", (), &x, || {
                info!("from write");
                1
            });
            engine.push(write)
        });
        futures::executor::block_on(async { pushed.await.unwrap().await }).unwrap();
        // Not under the lock: a panic would drop the request there.
        let spans = Collector::global().0.lock().unwrap().closed.clone();
        let own = spans.iter().find(|seen| seen.name == "operation" && seen.follows == [number]);
        assert!(own.is_some_and(|seen| seen.around.is_empty() && seen.fields["name"] == "write"), "{exec:?}");
        drop(request);
    }
    assert_eq!(Collector::global().around_event("from write"), vec![vec!["operation write".to_owned()]; 3]);
}
