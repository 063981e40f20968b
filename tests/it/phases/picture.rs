//! The picture of a phasing.

use anabranch::phases::{Phasing, Work};

use super::Items;
use crate::dice::Dice;

fn count(picture: &str, what: &str) -> usize {
    picture.matches(what).count()
}

/// Returns the labels in boxes.
fn labels(picture: &str) -> Vec<&str> {
    let boxes = picture.lines().filter(|line| line.starts_with("<g class=\"bar\">"));
    boxes.filter_map(|line| line.split("<text class=\"name\"").nth(1)?.split('>').nth(1)?.split('<').next()).collect()
}

fn chain(phases: &[u32]) -> Phasing {
    Items::chain(&[0, 0, 1, 1], |_| 1).written(phases).written().unwrap()
}

#[test]
fn two_periods_are_drawn_with_their_items() {
    // Seen to fail with items that go the wrong way, and with one period.
    let picture = chain(&[1, 1, 2, 2]).to_svg();
    assert_eq!(labels(&picture), ["n2 k-1", "n3 k-1", "n0 k", "n1 k", "n2 k", "n3 k", "n0 k+1", "n1 k+1"]);
    // Item k has a dark rim in each of its boxes, and one in the key.
    assert_eq!(count(&picture, "stroke=\"#263238\" stroke-width=\"2"), 4 + 1);
    assert_eq!(count(&picture, "stroke-dasharray"), 3, "the ends of periods");
    assert!(picture.contains(">2 phases: period 2 µs, latency 4 µs<"), "{picture}");
    assert!(picture.contains("r0 100 %, r1 100 %"), "{picture}");
    for text in ["phase 1", "phase 2", "item k", "r0", "r1", "phase 1 on item k", "phase 1 on item k+1"] {
        assert!(picture.contains(&format!(">{text}<")), "{text}");
    }
}

#[test]
fn a_label_that_is_too_long_keeps_its_item() {
    // Seen to fail with labels that are cut at their end, and with an empty name before the item.
    let mut work = Work::new();
    let cores = work.resource("cores", 1);
    let name = "a node whose name is far too long for its box";
    let nodes: Vec<_> = (0..12).map(|number| work.node(format!("{name} {number}"), cores, 1.0)).collect();
    nodes.iter().zip(1..).for_each(|(&node, phase)| work.phase(node, phase));
    // In the narrow boxes there is room for the item alone, or for nothing.
    let narrow = work.node("narrow", cores, 0.6);
    work.phase(narrow, 3);
    let picture = work.written().unwrap().to_svg();
    let mut found: Vec<&str> = labels(&picture).into_iter().map(|label| label.rsplit(' ').next().unwrap()).collect();
    let item = |item: i64| if item == 0 { "k".into() } else { format!("k{item:+}") };
    let mut expected: Vec<String> = (-11..1).chain(-10..2).map(item).collect();
    expected.extend([item(-2), item(-1)]);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn boxes_stand_where_the_schedule_puts_them() {
    // Seen to fail with rows by resource alone.
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let items = Items::random(&mut dice, 12, false);
        let phasing = items.work().written().unwrap();
        let picture = phasing.to_svg();
        let boxes: Vec<&str> = picture.lines().filter(|line| line.starts_with("<g class=\"bar\">")).collect();
        assert_eq!(boxes.len(), 2 * items.nodes.len(), "seed {seed}");
        let number = |line: &str, name: &str| {
            let rest = line.split(&format!("{name}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        // Boxes of one row do not overlap.
        let mut places: Vec<(i64, f64, f64)> = boxes
            .iter()
            .zip(phasing.iteration().iter().cycle())
            .filter(|(_, span)| span.end_us > span.start_us)
            .map(|(line, _)| {
                let (x, y, width) = (number(line, " x"), number(line, " y"), number(line, " width"));
                ((y * 10.0) as i64, x, x + width)
            })
            .collect();
        places.sort_by(|one, other| one.partial_cmp(other).unwrap());
        assert!(places.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1 + 0.2), "seed {seed}: {picture}");
        let rows: std::collections::HashSet<_> = phasing.iteration().iter().map(|span| (span.resource, span.lane)).collect();
        let drawn: std::collections::HashSet<_> = boxes.iter().map(|line| (number(line, " y") * 10.0) as i64).collect();
        assert_eq!(rows.len(), drawn.len(), "seed {seed}");
    }
}

#[test]
fn names_are_escaped_and_many_phases_have_a_key_that_ends() {
    // Seen to fail without the escapes, and with a key of all phases.
    let mut work = Work::new();
    let resource = work.resource("<R&D>\u{1}", 2);
    let nodes: Vec<_> = (0..40).map(|node| work.node(format!("<{node}> & \"x\""), resource, 5.0)).collect();
    nodes.windows(2).for_each(|pair| work.edge(pair[0], pair[1], 1));
    let phasing = work.each().unwrap();
    assert_eq!(phasing.depth(), 40);
    let picture = phasing.to_svg();
    assert!(picture.contains("&lt;R&amp;D&gt; ") && picture.contains("&lt;0&gt; &amp; &quot;x&quot; k"));
    assert!(!picture.contains("<0>") && !picture.contains('\u{1}'));
    assert!(picture.contains(">phase 9<") && !picture.contains("<text>phase 30<") && picture.contains(">… and 28 more names<"));
}
