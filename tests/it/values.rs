//! Values in a run: moved, shared, passed in and out, and dropped once, as early as possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anabranch::graph::Each;
use anabranch::{Executor, Graph, HostStream, Inputs, Value, inputs, take};

use crate::support::{Counted, Tally, block_on, executors, plan, until, value_of};

/// A type that cannot be copied, only moved or shared.
struct Block(Vec<u64>);

impl Block {
    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

#[test]
fn a_value_that_is_taken_is_moved() {
    let mut g = Graph::new();
    let x = g.input::<Block>("x");
    let task = g.task("task", take(&x), |mut block: Block| {
        block.0[0] += 1;
        block
    });
    let future = g.future("future", take(&task), async |mut block: Block| {
        block.0[0] += 10;
        Ok(block)
    });
    let kernel = g.kernel("kernel", take(&future), |_: &mut HostStream, block: Block| block);
    g.output("out", &kernel);
    let plan = plan(&g);
    for exec in executors() {
        let block = Block(vec![100; 1000]);
        let address = block.address();
        let out = value_of::<Block>(block_on(exec.run(&plan, inputs! { "x" => block })), "out");
        assert_eq!((out.address(), out.0[0]), (address, 111));
    }
}

#[test]
fn who_takes_a_value_comes_after_all_who_read_it() {
    // Seen to fail without the edges of `take_orders`: the takers are made first.
    let mut g = Graph::new();
    let x = g.input::<Block>("x");
    let y = g.task("y", &x, |x: &Block| Block(x.0.clone()));
    let spoil = |mut block: Block| block.0.fill(0);
    g.task("take x", take(&x), spoil);
    g.task("take y", take(&y), spoil);
    let sum = |block: &Block| block.0.iter().sum::<u64>();
    let sums: Vec<Value<u64>> = (0..20).map(|n| g.task(format!("{n}"), [&x, &y][n % 2], sum)).collect();
    let out = g.task("out", &sums[..], |sums: Each<u64>| sums.iter().sum::<u64>());
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        for _ in 0..50 {
            let run = exec.run(&plan, inputs! { "x" => Block(vec![1; 100]) });
            assert_eq!(*value_of::<u64>(block_on(run), "out"), 2000);
        }
    }
}

#[test]
fn tasks_and_kernels_read_one_value_in_place() {
    let mut g = Graph::new();
    let made = g.task("made", (), || Block(vec![7]));
    let address = |block: &Block| std::ptr::from_ref(block).addr();
    let mut reads: Vec<Value<usize>> = (0..50).map(|n| g.task(format!("{n}"), &made, address)).collect();
    reads.push(g.kernel("kernel", &made, move |_: &mut HostStream, block: &Block| address(block)));
    let out = g.task("out", &reads[..], |reads: Each<usize>| reads.iter().all(|read| Some(read) == reads.iter().next()));
    g.output("out", &out);
    for exec in executors() {
        assert!(*value_of::<bool>(block_on(exec.run(&plan(&g), Inputs::new())), "out"));
    }
}

#[test]
fn async_nodes_and_outputs_share_one_arc() {
    let mut g = Graph::new();
    let made = g.task("made", (), || Block(vec![7]));
    let held = g.future("held", &made, async |block: Arc<Block>| Ok(block));
    let both = g.future("both", (&made, &held), async |made: Arc<Block>, held: Arc<Arc<Block>>| Ok(Arc::ptr_eq(&made, &held)));
    g.output("made", &made);
    g.output("again", &made);
    g.output("held", &held);
    g.output("both", &both);
    for exec in executors() {
        let mut outputs = block_on(exec.run(&plan(&g), Inputs::new())).unwrap();
        let [made, again] = ["made", "again"].map(|name| outputs.take::<Block>(name).unwrap());
        assert!(Arc::ptr_eq(&made, &again));
        assert!(Arc::ptr_eq(&made, &outputs.take::<Arc<Block>>("held").unwrap()));
        assert!(*outputs.take::<bool>("both").unwrap());
    }
}

#[test]
fn an_input_may_be_shared_with_the_caller() {
    let mut g = Graph::new();
    let x = g.input::<Block>("x");
    let task = g.task("task", &x, |x: &Block| x.address());
    let future = g.future("future", &x, async |x: Arc<Block>| Ok(x.address()));
    let out = g.task("out", (&task, &future), |task: &usize, future: &usize| (*task, *future));
    g.output("out", &out);
    g.output("x", &x);
    let block = Arc::new(Block(vec![1]));
    for exec in executors() {
        let mut outputs = block_on(exec.run(&plan(&g), Inputs::new().with_arc("x", block.clone()))).unwrap();
        assert_eq!(*outputs.take::<(usize, usize)>("out").unwrap(), (block.address(), block.address()));
        assert!(Arc::ptr_eq(&outputs.take::<Block>("x").unwrap(), &block));
    }
    assert_eq!(Arc::strong_count(&block), 1);
}

#[test]
fn a_shared_input_is_its_owners_alone_when_the_run_is_over() {
    // Seen to fail when inputs were dropped with the run, which a worker that leaves it may have kept.
    let mut g = Graph::new();
    let (x, fails) = (g.input::<Block>("x"), g.input::<bool>("fails"));
    let out = g.try_task("out", (&x, &fails), |x: &Block, fails: &bool| match fails {
        true => Err("as it was told".into()),
        false => Ok(x.address()),
    });
    g.output("out", &out);
    let (plan, mut block) = (plan(&g), Arc::new(Block(vec![1])));
    for exec in executors() {
        for number in 0..2000 {
            let fails = number % 2 == 1;
            let run = exec.run(&plan, inputs! { "fails" => fails }.with_arc("x", block.clone()));
            assert_eq!(block_on(run).is_err(), fails);
            assert!(Arc::get_mut(&mut block).is_some(), "run {number} of {exec:?}");
        }
    }
}

/// A graph in which values are read, taken, shared, ignored by order edges, and returned.
fn all_sorts(tally: &Tally) -> Graph {
    let mut g = Graph::new();
    let make = |word: u64| {
        let tally = tally.clone();
        move || tally.value(word)
    };
    let x = g.input::<Counted>("x");
    let a = g.task("a", (), make(1));
    let b = g.kernel("b", &a, {
        let make = make(2);
        move |_: &mut HostStream, _: &Counted| make()
    });
    let c = g.future("c", (&a, take(&b)), async |a: Arc<Counted>, b: Counted| {
        smol::future::yield_now().await;
        assert_eq!((a.get(), b.get()), (1, 2));
        Ok(b)
    });
    let d = g.task("d", (take(&x), &c), |x: Counted, c: &Counted| {
        assert_eq!((x.get(), c.get()), (0, 2));
        x
    });
    let e = g.task("e", (&a, &c, take(&d)), |a: &Counted, c: &Counted, d: Counted| a.get() + c.get() + d.get());
    let f = g.task("f", &e, {
        let make = make(3);
        move |_: &u64| make()
    });
    g.order(&c, &f);
    g.output("c", &c);
    g.output("f", &f);
    g
}

#[test]
fn every_value_is_dropped_once() {
    let tally = Tally::default();
    let plan = plan(&all_sorts(&tally));
    for exec in executors() {
        for _ in 0..100 {
            let mut outputs = block_on(exec.run(&plan, inputs! { "x" => tally.value(0) })).unwrap();
            let f = outputs.take::<Counted>("f").unwrap();
            until(|| tally.alive() == 2);
            drop(outputs);
            until(|| tally.alive() == 1);
            assert_eq!(f.get(), 3);
        }
    }
    assert_eq!((tally.alive(), tally.made()), (0, 4 * 100 * executors().len()));
}

#[test]
fn a_value_is_dropped_before_the_node_after_its_last_reader() {
    // Seen to fail without the releases in `add_steps`.
    let tally = Tally::default();
    let mut g = Graph::new();
    let next = |tally: &Tally| {
        let tally = tally.clone();
        move |last: &Counted| {
            assert_eq!(tally.alive(), 1, "only the value that this node reads");
            tally.value(last.get() + 1)
        }
    };
    let first = tally.clone();
    let mut last = g.task("first", (), move || first.value(0));
    for n in 0..100 {
        last = g.task(format!("{n}"), &last, next(&tally));
    }
    g.output("out", &last);
    for exec in executors() {
        assert_eq!(value_of::<Counted>(block_on(exec.run(&plan(&g), Inputs::new())), "out").get(), 100);
    }
}

#[test]
fn a_value_read_by_several_programs_goes_with_the_last() {
    let tally = Tally::default();
    let mut g = Graph::new();
    let made = tally.clone();
    let value = g.task("value", (), move || made.value(1));
    let reads: Vec<Value<u64>> = (0..100).map(|n| g.task(format!("{n}"), &value, |v: &Counted| v.get())).collect();
    let all = g.task("all", &reads[..], |reads: Each<u64>| reads.iter().sum::<u64>());
    let seen = tally.clone();
    // One more node, because a value may be dropped at the same time as the node after its last reader runs.
    let out = g.task("out", &all, move |all: &u64| (*all, seen.alive()));
    g.output("out", &out);
    let plan = plan(&g);
    assert!(plan.schedule().streams() > 50);
    let inline = Executor::inline();
    assert_eq!(*value_of::<(u64, isize)>(block_on(inline.run(&plan, Inputs::new())), "out"), (100, 0));
    for exec in executors() {
        assert_eq!(value_of::<(u64, isize)>(block_on(exec.run(&plan, Inputs::new())), "out").0, 100);
        assert_eq!(tally.alive(), 0);
    }
}

#[test]
fn outputs_outlive_everything() {
    let tally = Tally::default();
    for exec in executors() {
        let mut outputs = {
            let plan = plan(&all_sorts(&tally));
            block_on(exec.run(&plan, inputs! { "x" => tally.value(0) })).unwrap()
        };
        drop(exec);
        assert_eq!(outputs.take::<Counted>("c").unwrap().get(), 2);
        assert_eq!(outputs.take::<Counted>("f").unwrap().get(), 3);
        until(|| tally.alive() == 0);
    }
}

#[test]
fn a_closure_goes_with_its_graph_and_the_last_plan() {
    let tally = Tally::default();
    let mut g = Graph::new();
    let kept = tally.value(9);
    let a = g.task("a", (), move || kept.get());
    g.output("out", &a);
    let plans = [plan(&g), plan(&g)];
    drop(g);
    let run = Executor::inline().run(&plans[0], Inputs::new());
    drop(plans);
    assert_eq!(tally.alive(), 1, "the run keeps its plan");
    drop(run);
    assert_eq!(tally.alive(), 0);
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page(u8);

#[test]
fn large_and_aligned_values_stand_where_they_should() {
    let mut g = Graph::new();
    let byte = g.task("byte", (), || 1u8);
    let page = g.task("page", &byte, |byte: &u8| Page(*byte));
    let large = g.task("large", &page, |page: &Page| [page.0; 70_001]);
    let next = g.future("next", (&page, take(&large)), async |page: Arc<Page>, large: [u8; 70_001]| {
        smol::future::yield_now().await;
        assert!(std::ptr::from_ref(&*page).addr().is_multiple_of(4096));
        Ok(Page(page.0 + large[70_000]))
    });
    let last = g.kernel("last", (&byte, &next), |_: &mut HostStream, byte: &u8, next: &Page| {
        assert!(std::ptr::from_ref(next).addr().is_multiple_of(4096));
        Page(byte + next.0)
    });
    g.output("out", &last);
    for exec in executors() {
        let page = value_of::<Page>(block_on(exec.run(&plan(&g), Inputs::new())), "out");
        assert_eq!((page.0, std::ptr::from_ref(&*page).addr() % 4096), (3, 0));
    }
}

static TOKENS_DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A type without size that must not be made from nothing, or dropped twice.
struct Token(());

impl Drop for Token {
    fn drop(&mut self) {
        TOKENS_DROPPED.fetch_add(1, SeqCst);
    }
}

#[test]
fn values_without_size_are_values() {
    // Seen to fail with `is_unit` true for every type without size.
    let mut g = Graph::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| g.task(name, (), || Token(())));
    g.task("read", &a, |_: &Token| ());
    g.task("take", take(&b), |token: Token| drop(token));
    g.output("c", &c);
    for (runs, exec) in executors().into_iter().enumerate() {
        let token = value_of::<Token>(block_on(exec.run(&plan(&g), Inputs::new())), "c");
        assert_eq!(TOKENS_DROPPED.load(SeqCst), 3 * runs + 2);
        drop(token);
        assert_eq!(TOKENS_DROPPED.load(SeqCst), 3 * runs + 3);
    }
}

#[test]
fn units_can_be_read_taken_given_in_and_given_out() {
    let mut g = Graph::new();
    let x = g.input::<()>("x");
    let a = g.task("a", &x, |(): &()| ());
    let b = g.task("b", take(&a), |(): ()| ());
    let c = g.future("c", (&b, take(&x)), async |_: Arc<()>, (): ()| Ok(()));
    let units = g.task("units", &[b, c][..], |units: Each<()>| units.len());
    g.output("c", &c);
    g.output("units", &units);
    for exec in executors() {
        let mut outputs = block_on(exec.run(&plan(&g), inputs! { "x" => () })).unwrap();
        assert_eq!((*outputs.take::<()>("c").unwrap(), *outputs.take::<usize>("units").unwrap()), ((), 2));
    }
}

#[test]
fn an_output_belongs_to_whoever_awaited_the_run() {
    // Seen to fail when the run kept its own Arc: then a worker that left the run was sometimes a second
    // owner.
    let mut g = Graph::new();
    let x = g.input::<Block>("x");
    let out = g.task("out", take(&x), |x: Block| x);
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        for _ in 0..1000 {
            let out = value_of::<Block>(block_on(exec.run(&plan, inputs! { "x" => Block(vec![1]) })), "out");
            assert!(Arc::try_unwrap(out).is_ok());
        }
    }
}
