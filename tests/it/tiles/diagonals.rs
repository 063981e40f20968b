//! Diagonals with so many batches that they are not all tried: the reported meeting is only a bound.

use anabranch::tiles::{Meeting, Operation, Outline, Part, Rule};

const BATCHES: u64 = 1 << 25;

/// Tiles of one element, by these axes of the launch.
fn by(axes: &[usize]) -> Part {
    Part::tiles(vec![1; axes.len()]).by(axes)
}

fn reasons(outline: &Outline, rule: Rule) -> Vec<String> {
    outline.reasons(rule).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn a_bound_is_known_as_one() {
    let (shape, launch) = ([8192, 4096], [8192, 4096]);
    let met = Meeting::of(&shape, (&[BATCHES], &by(&[0, 0])), (&launch, &by(&[0, 1]))).unwrap();
    let last = BATCHES as i64 - 1;
    assert_eq!(met, Some(Meeting { lag: last, reach: last, is_exact: false }));
}

#[test]
fn a_batch_may_need_the_last_one() {
    // Seen to fail with "needs": batch (i, i) needs batch i, which is no later.
    let mut outline = Outline::new();
    let a = outline.store("a", [8192, 4096], 8);
    outline.op(Operation::new("diagonal", [BATCHES]).read(a, by(&[0, 0])));
    outline.op(Operation::new("all", [8192, 4096]).write(a, by(&[0, 1])));
    assert_eq!(
        reasons(&outline, Rule::Exact),
        [
            "store 'a': 'diagonal' reads tiles of 1×1, by axes [0, 0] of the launch, and 'all' writes tiles of 1×1; the first batch of 'all' that shares elements may need 'diagonal' up to its last batch"
        ]
    );
}

/// Returns the end of the only reason under the rule `InOrder`, for a diagonal that is moved by `offset`
/// elements.
fn ahead(offset: i64) -> String {
    let mut outline = Outline::new();
    let a = outline.store("a", [2, 8192, 4096], 8);
    outline.op(Operation::new("diagonal", [2, BATCHES]).read(a, by(&[0, 1, 1]).offset([0, offset, offset])));
    outline.op(Operation::new("all", [2, 8192, 4096]).write(a, by(&[0, 1, 2])));
    let [reason] = &reasons(&outline, Rule::InOrder)[..] else { panic!() };
    reason.rsplit("; ").next().unwrap().to_owned()
}

#[test]
fn a_batch_may_need_a_later_one() {
    // Seen to fail with "needs": batch (b, i, i) needs batch (b, i), which is no later.
    assert_eq!(ahead(0), "a batch of 'all' may need one of 'diagonal' that is up to 33554431 later");
}

#[test]
fn a_batch_that_was_found_does_need_a_later_one() {
    assert_eq!(ahead(-1), "batch 0 of 'all' needs batch 1 of 'diagonal'");
}

#[test]
fn batches_of_one_operation_may_use_the_same_elements() {
    // Seen to fail with "use": each has an element of its own.
    let mut outline = Outline::new();
    let a = outline.store("a", [8192, 4096], 8);
    outline.op(Operation::new("diagonal", [BATCHES]).write(a, by(&[0, 0])));
    assert_eq!(
        reasons(&outline, Rule::Exact),
        [
            "store 'a': 'diagonal' writes tiles of 1×1, by axes [0, 0] of the launch, and 'diagonal' writes tiles of 1×1, by axes [0, 0] of the launch; so two batches of 'diagonal' may use the same elements"
        ]
    );
}
