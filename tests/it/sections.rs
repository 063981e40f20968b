//! Sections of graphs: their nodes, their inputs and outputs, and runs of a section together with runs of the
//! whole.

use std::sync::Arc;

use anabranch::graph::{Backend, Each, NodeId, Shape, times};
use anabranch::policy::{PerOperator, Single};
use anabranch::{Executor, Graph, Inputs, inputs, take};

use crate::policies::shapes::random_shape;
use crate::support::block_on;

/// text -> words -> { square, half } -> sum; `text` is an input, `sum` the output.
fn graph() -> Graph {
    let mut g = Graph::new();
    let text = g.input::<String>("text");
    let words = g.task("words", &text, |t: &String| t.split(' ').count());
    let square = g.task("square", &words, |n: &usize| n * n);
    let half = g.future("half", &words, async |n: Arc<usize>| Ok(*n / 2));
    let sum = g.task("sum", (take(&square), &half), |a: usize, b: &usize| a + b);
    g.output("sum", &sum);
    g
}

fn names(shape: &Shape) -> Vec<&str> {
    shape.nodes().iter().map(|node| &*node.name).collect()
}

#[test]
fn a_section_has_the_nodes_between_its_ends() {
    // Seen to fail with all nodes after the first ends, and with all before the last ends.
    let graph = graph();
    let section = |from: &[&str], to: &[&str]| names(graph.section(from, to).unwrap().shape()).join(" ");
    assert_eq!(section(&[], &[]), "words square half sum");
    assert_eq!(section(&["square"], &[]), "square sum");
    assert_eq!(section(&[], &["square", "half"]), "words square half");
    assert_eq!(section(&["words"], &["half"]), "words half");
    assert_eq!(section(&["half"], &["half"]), "half");
}

#[test]
fn what_comes_from_outside_is_an_input() {
    let section = graph().section(&["square"], &[]).unwrap().compile().unwrap();
    for exec in [Executor::inline(), Executor::host().unwrap()] {
        let given = inputs! { "words" => 4usize, "half" => 2usize };
        assert_eq!(*block_on(exec.run(&section, given)).unwrap().take::<usize>("sum").unwrap(), 18);
        let missing = block_on(exec.run(&section, inputs! { "words" => 4usize })).unwrap_err();
        assert_eq!(missing.to_string(), "input 'half' was not given: add it to inputs! { \"half\" => ... }");
    }
}

#[test]
fn the_values_of_the_last_nodes_are_outputs() {
    let section = graph().section(&[], &["square", "half"]).unwrap().compile_with(&Single).unwrap();
    let mut outputs = block_on(Executor::inline().run(&section, inputs! { "text" => String::from("a b c d") })).unwrap();
    assert_eq!((*outputs.take::<usize>("square").unwrap(), *outputs.take::<usize>("half").unwrap()), (16, 2));
    assert!(outputs.take::<usize>("sum").unwrap_err().to_string().contains("the plan has no output named 'sum'"));
}

#[test]
fn plans_of_one_graph_run_side_by_side() {
    let graph = graph();
    let whole = graph.compile_with(&Single).unwrap();
    let (front, back) = (graph.section(&[], &["words"]).unwrap(), graph.section(&["square", "half"], &[]).unwrap());
    let (front, back) = (front.compile_with(&PerOperator).unwrap(), back.compile_with(&PerOperator).unwrap());
    let exec = Executor::builder().workers(2).build().unwrap();
    block_on(async {
        for _ in 0..50 {
            let text = || String::from("a b c d e f");
            let (all, words) =
                futures::join!(exec.run(&whole, inputs! { "text" => text() }), exec.run(&front, inputs! { "text" => text() }));
            let words: Arc<usize> = words.unwrap().take("words").unwrap();
            let mut sum = exec.run(&back, Inputs::new().with_arc("words", words)).await.unwrap();
            assert_eq!(sum.take::<usize>("sum").unwrap(), all.unwrap().take::<usize>("sum").unwrap());
        }
    });
}

#[test]
fn a_value_that_is_taken_in_the_section_is_given_by_value() {
    let section = graph().section(&["sum"], &[]).unwrap().compile_with(&Single).unwrap();
    let exec = Executor::inline();
    let mut outputs = block_on(exec.run(&section, inputs! { "square" => 9usize, "half" => 1usize })).unwrap();
    assert_eq!(*outputs.take::<usize>("sum").unwrap(), 10);
    let error = graph().section(&[], &["sum", "square"]).unwrap().compile_with(&Single).unwrap_err();
    assert!(error.to_string().starts_with("'sum' takes 'square' by value, but the output 'square' shares it"), "{error}");
}

#[test]
fn what_is_not_there_is_named() {
    let error = |from: &[&str], to: &[&str]| graph().section(from, to).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error(&["Words"], &[]), "there is no node named 'Words'; did you mean 'words'?");
    assert_eq!(
        error(&["sum"], &["square", "half"]),
        "no path leads from 'sum' to 'square' or 'half': name nodes of which one comes after the other"
    );
    let mut broken = Graph::new();
    broken.task("same", (), || {});
    broken.task("same", (), || {});
    assert!(broken.section(&[], &[]).and_then(|section| section.compile_with(&Single)).unwrap_err().to_string().contains("same"));
}

#[test]
fn sections_of_shapes_keep_paths_and_edges() {
    // Seen to fail with all nodes after the first ends.
    for seed in 0..300 {
        let shape = random_shape(seed, 40);
        let ids: Vec<NodeId> = shape.ids().collect();
        let name = |place: usize| &*shape.nodes()[ids[place % ids.len()].index()].name;
        let ends = [name(seed as usize * 7), name(seed as usize * 13 + 5)];
        let Ok(section) = shape.section(&ends[..1], &ends[1..]) else { continue };
        assert!(names(&section).contains(&ends[0]) && names(&section).contains(&ends[1]), "seed {seed}");
        let is_in = |node: NodeId| names(&section).contains(&&*shape.nodes()[node.index()].name);
        let inner = shape.edges().iter().filter(|edge| is_in(edge.source) && is_in(edge.target)).count();
        assert_eq!(section.edges().len(), inner, "seed {seed}");
        section.schedule_with(&PerOperator).unwrap().verify().unwrap();
    }
    let mut shape = Shape::new();
    let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
    shape.read(a, 0, b);
    let alone = shape.section(&["b"], &[]).unwrap();
    assert_eq!((names(&alone), alone.edges().len()), (vec!["b"], 0));
    assert!(alone.verify_programs::<Vec<anabranch::plan::Step>>(&[]).is_err());
}

#[test]
fn a_section_of_units_needs_nothing_given() {
    let mut g = Graph::new();
    let first = g.task("first", (), || {});
    let second = g.task("second", (), || {});
    g.order(&first, &second);
    let section = g.section(&["second"], &["second"]).unwrap().compile_with(&Single).unwrap();
    block_on(Executor::inline().run(&section, Inputs::new())).unwrap();
}

#[test]
fn names_that_would_mean_two_things_are_mistakes() {
    // Seen to panic in a node, and to give the value of another node.
    let mut g = Graph::new();
    let x = g.input::<u32>("n");
    let n = g.task("n", &x, |x: &u32| x + 1);
    let z = g.task("z", (&x, &n), |x: &u32, n: &u32| x + n);
    g.output("z", &z);
    let error = g.section(&["z"], &[]).unwrap().compile_with(&Single).unwrap_err();
    assert!(error.to_string().contains("input") && error.to_string().contains("'n'"), "{error}");
    let mut g = Graph::new();
    let a = g.task("a", (), || 1);
    let b = g.task("b", &a, |a: &i32| a + 1);
    g.output("b", &a);
    g.output("c", &b);
    let error = g.section(&[], &["b"]).unwrap().compile_with(&Single).unwrap_err();
    assert!(error.to_string().contains("output") && error.to_string().contains("'b'"), "{error}");
}

#[test]
fn what_is_made_outside_is_no_output() {
    // Seen to fail with outputs that hand an input through.
    let mut g = Graph::new();
    let a = g.task("a", (), || 1);
    let b = g.task("b", &a, |a: &i32| a + 1);
    g.output("a_out", &a);
    g.output("b_out", &b);
    let section = g.section(&["b"], &[]).unwrap().compile_with(&Single).unwrap();
    let mut outputs = block_on(Executor::inline().run(&section, inputs! { "a" => 5 })).unwrap();
    assert_eq!(*outputs.take::<i32>("b_out").unwrap(), 6);
    assert!(outputs.take::<i32>("a_out").is_err());
}

/// x -> loop (a state, and `by` from outside) -> { first, second }; `by` is a node.
fn looped() -> Graph {
    let mut g = Graph::new();
    let (x, by) = (g.input::<u64>("x"), g.input::<u64>("by"));
    let (x, by) = (g.task("start", &x, |x: &u64| *x), g.task("step", &by, |by: &u64| *by));
    let (a, b) = g.repeat("loop", (&x, take(&by)), times(3), |g, (a, b)| {
        let c = g.future("add", (&a, &x), async |a: Arc<u64>, x: Arc<u64>| Ok(*a + *x));
        (c, g.task("twice", &b, |b: &u64| b * 2))
    });
    let sum = g.task("sum", (&a, &b), |a: &u64, b: &u64| a * 100 + b);
    g.output("sum", &sum);
    g
}

#[test]
fn a_loop_is_cut_out_with_its_graphs() {
    // Seen to fail with values that the section's loop keeps, and that are not `Arc`s; and with its second
    // value left behind.
    let graph = looped();
    let run = |section: &Graph, inputs: Inputs| block_on(Executor::inline().run(&section.compile_with(&Single).unwrap(), inputs));
    let mut outputs = run(&graph.section(&["loop"], &["loop"]).unwrap(), inputs! { "start" => 5u64, "step" => 1u64 }).unwrap();
    assert_eq!((*outputs.take::<u64>("loop").unwrap(), *outputs.take::<u64>("loop 1").unwrap()), (20, 8));
    let mut outputs = run(&graph.section(&["sum"], &[]).unwrap(), inputs! { "loop" => 2u64, "loop 1" => 3u64 }).unwrap();
    assert_eq!(*outputs.take::<u64>("sum").unwrap(), 203);
    let mut outputs = run(&graph.section(&["start", "step"], &[]).unwrap(), inputs! { "x" => 5u64, "by" => 1u64 }).unwrap();
    assert_eq!(*outputs.take::<u64>("sum").unwrap(), 2008);
    assert!(graph.section(&[], &["start"]).unwrap().compile_with(&Single).unwrap().schedule().inner().is_empty());
}

#[test]
fn a_section_has_no_more_ports_than_a_graph() {
    // Seen to compile, after a search of all names for each.
    let mut g = Graph::new();
    let parts: Vec<_> = (0..5000).map(|part| g.task(format!("part {part}"), (), move || part)).collect();
    let sum = g.task("sum", &parts[..], |parts: Each<u32>| parts.iter().sum::<u32>());
    g.output("sum", &sum);
    let names: Vec<String> = (0..5000).map(|part| format!("part {part}")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    for (section, what) in [(g.section(&["sum"], &[]), "inputs"), (g.section(&[], &names), "outputs")] {
        let error = section.unwrap().compile_with(&Single).unwrap_err();
        assert!(error.is_invalid_graph() && error.to_string().contains(&format!("the number of {what} is 4097")), "{error}");
    }
}
