//! Published cases: `cases/streaming.json`.

use anabranch::tiles::{Outline, Reason, Rule, Streamed};
use serde_json::Value;

fn cases() -> Vec<(Value, Outline)> {
    let text = include_str!("../cases/streaming.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    cases.into_iter().zip(Outline::from_json(text).unwrap()).collect()
}

/// Returns the names of the operations of each group.
fn groups(streamed: &Streamed) -> Value {
    let name = |op| streamed.outline().name_of(op).to_string();
    streamed.groups().iter().map(|group| group.ops().map(name).collect::<Vec<_>>()).collect::<Vec<_>>().into()
}

/// Returns the first reason of Legate's rule, in the words of the cases.
fn words(reason: &Reason) -> String {
    let (op, why) = match reason {
        Reason::Launches { op, .. } => (&op.name, "unequal launch domains".to_owned()),
        Reason::Reduced { clash } => (
            &clash.later.op.name,
            format!(
                "{} a store being reduced",
                if clash.later.mode == anabranch::tiles::Mode::Read { "reading" } else { "writing" }
            ),
        ),
        Reason::Partitions { clash } => {
            use anabranch::tiles::Mode::{Read, Write};
            let hazard = match (&clash.earlier.mode, &clash.later.mode) {
                (Read, Read) => "Multiple Reads with unequal partitioning",
                (Write, Read) => "RAW dependency, unequal partitioning",
                other => panic!("{other:?}"),
            };
            (&clash.later.op.name, hazard.to_owned())
        }
        other => panic!("{other:?}"),
    };
    format!("error at {op}: {why}")
}

#[test]
fn legates_rule_gives_its_verdicts() {
    // Seen to fail with partitions that are compared with their offsets.
    for (case, outline) in cases() {
        let id = &case["id"];
        let reasons = outline.reasons(Rule::Legate).unwrap();
        let strict = reasons.first().map_or("ok".to_owned(), words);
        assert_eq!(case["rule_strict"], strict, "{id}");
        assert_eq!(case["rule_relaxed_groups"], groups(&outline.stream(Rule::Legate).unwrap()), "{id}");
    }
}

#[test]
fn batches_in_order_are_enough_where_no_batch_needs_a_later_one() {
    // Seen to fail with tiles that end one element too late.
    for (case, outline) in cases() {
        let (id, expected) = (&case["id"], &case["exact_in_order_batches"]);
        let reasons = outline.reasons(Rule::InOrder).unwrap();
        assert_eq!(expected["streamable"], reasons.is_empty(), "{id}: {reasons:?}");
        let text = expected["reason"].as_str().unwrap_or_default();
        match reasons.first() {
            None => assert_eq!(expected["lag"], 0, "{id}"),
            Some(Reason::Batches { .. }) => assert_eq!(text, "different number of batches", "{id}"),
            Some(Reason::Ahead { lag, .. }) => assert_eq!(expected["streamable_with_skew"], *lag, "{id}"),
            Some(Reason::NeedsLast { clash, lag }) => {
                let [earlier, later, store] = [&clash.earlier.op.name, &clash.later.op.name, &clash.store];
                let expected_text = format!("a batch needs batches up to the last one ({earlier}->{later} on {store})");
                assert_eq!((text, &expected["lag"]), (&*expected_text, &Value::from(*lag)), "{id}");
            }
            Some(other) => panic!("{id}: {other}"),
        }
    }
}

#[test]
fn the_exact_rule_streams_what_needs_few_later_batches() {
    // Seen to fail without skew.
    for (case, outline) in cases() {
        let (id, in_order) = (&case["id"], &case["exact_in_order_batches"]);
        let streamed = outline.stream(Rule::Exact).unwrap();
        // A fill of a scalar is done before the batches.
        let is_hoisted = id == "seed_sample_cupynumeric";
        let skew = in_order["streamable_with_skew"].as_u64();
        let may_stream = in_order["streamable"] == true || skew.is_some() || is_hoisted;
        assert_eq!(streamed.is_one(), may_stream, "{id}: {:?}", outline.reasons(Rule::Exact).unwrap());
        if may_stream {
            assert_eq!(streamed.groups()[0].skews().iter().max(), Some(&skew.unwrap_or(0)), "{id}");
            assert!(streamed.bytes(1) <= streamed.unstreamed_bytes(), "{id}");
        }
    }
}
