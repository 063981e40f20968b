//! A phasing as text, and its report: bounds, loads, bytes, warnings.

use anabranch::phases::{Bound, Work};
use anabranch::plan::TimeUnit;

use super::Items;

#[test]
fn a_phasing_prints_as_a_table() {
    // Seen to fail with rows that are not wrapped.
    let mut work = Work::new();
    let (gpu, cpu) = (work.resource("GPU", 1), work.resource("cores", 2));
    let resize = work.node("resize", gpu, 900.0);
    let detect = work.node("detect", gpu, 1500.0);
    let track = work.node("track", cpu, 2000.0);
    let log = work.node("log", cpu, 0.25);
    work.edge(resize, detect, 1 << 20);
    work.edge(detect, track, 3000);
    work.edge(resize, track, 1 << 20);
    work.feedback(track, track, 64);
    work.phase(resize, 1);
    work.phase(detect, 1);
    work.phase(track, 2);
    work.edge(track, log, 0);
    work.edge(resize, log, 0);
    let text = work.written().unwrap().to_string();
    let expected = "\
2 phases, 4 nodes: period 2.4 ms, latency 4.4 ms
unpipelined  log 0.00025 ms
phase 1      resize 0.9 ms · detect 1.5 ms
phase 2      track 2 ms
load         GPU 100 % (2.4 ms) · cores × 2 42 % (2 ms)
bound        resource GPU is always busy
method       phases given, schedule exact
in flight    2.0 MiB
warning      unpipelined node 'log' mixes the data of different items: in one schedule iteration, 'resize' has item N \
and 'track' has item N - 1
";
    assert_eq!(text, expected, "\n{text}");
    let text = work.written().unwrap().in_unit(TimeUnit::Microseconds).to_string();
    assert!(text.starts_with("2 phases, 4 nodes: period 2400 µs, latency 4400 µs\nunpipelined  log 0.25 µs\n"), "{text}");
    let nodes: Vec<_> = (0..100).map(|node| (0, node)).collect();
    let long = Items::new(&[1], &nodes, &[]).work().written().unwrap().to_string();
    assert!(long.lines().all(|line| line.chars().count() <= 110), "{long}");
}

#[test]
fn the_bound_is_a_resource_a_path_or_the_order() {
    // Seen to fail when paths come before resources.
    let bound = |items: &Items, phases: &[u32]| items.written(phases).written().unwrap().bound();
    let chain = Items::chain(&[0, 1, 2], |_| 1);
    assert_eq!(bound(&chain, &[1, 1, 1]), Bound::CriticalPath(1));
    assert_eq!(bound(&chain, &[1, 2, 2]), Bound::CriticalPath(2));
    assert_eq!(bound(&chain, &[1, 2, 3]), Bound::Resource("r0".into()));
    assert_eq!(bound(&chain, &[1, 0, 2]), Bound::CriticalPath(0));
    // A resource waits for the first node, and works then.
    let fan = Items::new(&[1, 1], &[(0, 1), (1, 1), (1, 1)], &[(0, 1, 0), (0, 2, 0)]);
    assert_eq!(bound(&fan, &[1, 1, 1]), Bound::Order);
}

#[test]
fn without_work_nothing_bounds_the_period() {
    // Seen to fail with a resource of load 0 that is always busy.
    let idle = Items::new(&[1], &[(0, 0)], &[]);
    for work in [idle.work(), Items::new(&[2], &[], &[]).work()] {
        let phasing = work.written().unwrap();
        assert_eq!((phasing.bound(), phasing.period_us()), (Bound::Nothing, 0.0));
        assert!(phasing.to_string().contains("bound        nothing: no node takes time\n"), "{phasing}");
    }
}

#[test]
fn bytes_count_the_reach_of_a_value_once_and_feedback_by_its_lag() {
    // Seen to fail with the sum of the edges of a node.
    let items = Items::new(&[1], &[(0, 1), (0, 1), (0, 1)], &[(0, 1, 100), (0, 2, 10), (1, 2, 1)]);
    let bytes = |items: &Items, phases: &[u32]| items.written(phases).written().unwrap().bytes_in_flight();
    assert_eq!(bytes(&items, &[1, 1, 1]), 100 + 1);
    assert_eq!(bytes(&items, &[1, 1, 3]), 100 + 3);
    assert_eq!(bytes(&items, &[1, 2, 3]), 200 + 2);
    let fed = Items { feedback: vec![(2, 0, 1000), (2, 2, 5000)], ..items };
    assert_eq!(bytes(&fed, &[1, 1, 1]), 101 + 5000);
    assert_eq!(bytes(&fed, &[1, 2, 8]), 200 + 7 + 8000);
    assert_eq!(bytes(&fed, &[0, 1, 8]), 100 + 8 + 8000);
}

#[test]
fn mixed_items_are_warned_of() {
    // Seen to fail with warnings that do not follow unpipelined nodes.
    let diamond = [(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1)];
    let items = Items::new(&[1], &[(0, 1); 4], &diamond);
    let warnings = |phases: &[u32]| items.written(phases).written().unwrap().warnings().to_vec();
    for calm in [[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 3, 4], [0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0], [1, 2, 2, 0]] {
        assert_eq!(warnings(&calm), Vec::<String>::new(), "{calm:?}");
    }
    let item = |node: &str, item: &str| format!("'{node}' has item {item}");
    let [warning] = &warnings(&[1, 1, 3, 0])[..] else { panic!("one node mixes") };
    assert!(warning.contains("unpipelined node 'n3' mixes the data of different items"), "{warning}");
    assert!(warning.contains(&item("n1", "N")) && warning.contains(&item("n2", "N - 2")), "{warning}");
    // Through another unpipelined node.
    let [warning] = &warnings(&[1, 0, 2, 0])[..] else { panic!("one node mixes") };
    assert!(warning.contains(&item("n0", "N")) && warning.contains(&item("n2", "N - 1")), "{warning}");
    assert_eq!(
        warnings(&[0, 1, 2, 2]),
        ["node 'n2' of phase 2 works on item N - 1 and gets data of item N from 'n0', through unpipelined nodes"]
    );
}
