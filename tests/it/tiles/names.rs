//! Operations with the same name: messages and reports tell them apart by their places in the scope.

use anabranch::tiles::{OpKind, Operation, Outline, Part, Rule};

fn tiles() -> Part {
    Part::tiles([8])
}

/// A fill of `a`, an `inc` with the same batches, and one with others.
fn two_named_inc() -> Outline {
    let mut outline = Outline::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| outline.store(name, [64], 8));
    outline.op(Operation::new("fill", [8]).write(a, tiles()));
    outline.op(Operation::new("inc", [8]).read(a, tiles()).write(b, tiles()));
    outline.op(Operation::new("inc", [8]).read(b, Part::whole()).write(c, tiles()));
    outline
}

#[test]
fn reasons_tell_operations_with_one_name_apart() {
    // Seen to fail with names alone.
    let reasons = |outline: &Outline, rule| {
        outline.reasons(rule).unwrap().iter().map(|reason| format!("{}: {reason}", reason.op())).collect::<Vec<_>>()
    };
    let mut outline = two_named_inc();
    let a = outline.store("d", [64], 8);
    outline.op(Operation::new("fill", [4]).write(a, tiles()));
    outline.op(Operation::new("last", [4]).kind(OpKind::Image).write(a, tiles()));
    assert_eq!(
        reasons(&outline, Rule::Exact),
        [
            "'inc' (op 2): store 'b': 'inc' (op 1) writes tiles of 8, and 'inc' (op 2) reads the whole store; the first batch of 'inc' (op 2) that shares elements needs 'inc' (op 1) up to its last batch",
            "'fill' (op 3): 'fill' (op 3) has 4 batches, and 'inc' (op 2) has 8: let both have as many",
            "'last': 'last' has a partition that data decides: which batches it needs is not known before the run",
        ]
    );
    assert_eq!(
        reasons(&outline, Rule::Legate)[1],
        "'fill' (op 3): the launch domains of 'fill' (op 3) and 'inc' (op 2) are not equal"
    );
}

#[test]
fn a_bound_names_the_operation_with_which_it_is_too_little() {
    // Seen to fail with names alone.
    let mut outline = Outline::new();
    let stores: Vec<_> = (0..80).map(|store| outline.store(format!("s{store}"), [800], 8)).collect();
    outline.op(Operation::new("fill", [100]).write(stores[0], tiles()));
    for pair in stores.windows(2) {
        outline.op(Operation::new("step", [100]).read(pair[0], tiles().halo([1], [1])).write(pair[1], tiles()));
    }
    let streamed = outline.stream_within(Rule::Exact, 13_568).unwrap();
    let starts =
        ["with 'step' (op 38) one batch in flight needs 13696 bytes", "with 'step' (op 43) one batch in flight needs 13760"];
    for (reason, start) in streamed.reasons().iter().zip(starts) {
        assert!(reason.to_string().starts_with(start), "{reason}");
    }
    assert_eq!(streamed.reasons().len(), starts.len());
}

#[test]
fn operations_with_one_name_have_reasons_of_their_own() {
    // Seen to fail with names alone: the second reason was taken for the first.
    let mut outline = Outline::new();
    let a = outline.store("a", [64], 8);
    outline.op(Operation::new("fill", [8]).write(a, tiles()));
    (0..2).for_each(|_| _ = outline.op(Operation::new("all", [8]).kind(OpKind::Concurrent).read(a, tiles())));
    let reasons = outline.reasons(Rule::Exact).unwrap();
    assert_eq!(
        reasons.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["'all' (op 1) needs all its batches at once", "'all' (op 2) needs all its batches at once"]
    );
}

#[test]
fn reports_and_pictures_tell_them_apart() {
    // Seen to fail with names alone.
    let streamed = two_named_inc().stream(Rule::Exact).unwrap();
    let text = streamed.to_string();
    assert!(text.contains("  operations fill         batch by batch\n             inc (op 1)   batch by batch\n"), "{text}");
    assert!(text.contains("before 'inc' (op 2):\n") && text.contains("  operations inc (op 2)   batch by batch\n"), "{text}");
    let picture = streamed.to_svg();
    for label in [">fill<", ">inc (op 1)<", ">inc (op 2)<", ">cut before 'inc' (op 2): the first batch of 'inc' (op 2) "] {
        assert!(picture.contains(label), "{label}: {picture}");
    }
}

#[test]
fn a_picture_cuts_a_long_name_before_its_number() {
    // Seen to fail with names that are cut at their end.
    let mut outline = Outline::new();
    let a = outline.store("a", [64], 8);
    let name = "a name of more than forty characters, which is cut";
    (0..2).for_each(|_| _ = outline.op(Operation::new(name, [8]).write(a, tiles())));
    let picture = outline.stream(Rule::Exact).unwrap().to_svg();
    assert!(picture.contains(">…y characters, which is cut (op 0)<") && !picture.contains(">a name of more"), "{picture}");
}

#[test]
fn faults_tell_them_apart() {
    // Seen to fail with names alone.
    let mut outline = two_named_inc();
    outline.op(Operation::new("inc", [0]));
    let text = outline.stream(Rule::Exact).unwrap_err().to_string();
    assert!(text.starts_with("operation 'inc' (op 3) has an axis "), "{text}");
}
