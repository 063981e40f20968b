//! Wrong outlines: each is an error that names the mistake.

use anabranch::tiles::{Operation, Outline, Part, Rule};

fn fault(build: impl FnOnce(&mut Outline)) -> String {
    let mut outline = Outline::new();
    build(&mut outline);
    let error = outline.stream(Rule::Exact).unwrap_err();
    assert!(error.is_invalid_graph(), "{error}");
    error.to_string()
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let read = |part: Part| {
        fault(|outline| {
            let a = outline.store("a", [8, 8], 8);
            outline.op(Operation::new("sum", [4]).read(a, part));
        })
    };
    assert_eq!(
        read(Part::tiles([8])),
        "operation 'sum' reads store 'a' in tiles of 1 axis, and the store has 2 axes: give tiles a size along each axis of the store"
    );
    assert_eq!(
        read(Part::tiles([2, 8])),
        "operation 'sum' reads store 'a' in tiles that axis 1 of the launch counts, and the launch has 1 axis: launch over more axes, or choose others with `by`"
    );
    assert_eq!(
        read(Part::tiles([0, 8]).by([0, 0])),
        "operation 'sum' reads store 'a' in tiles without elements: give them at least one along each axis"
    );
    for (what, part) in [
        ("offset", Part::tiles([1, 8]).offset([1])),
        ("halo", Part::tiles([1, 8]).halo([1], [1, 1])),
        ("halo", Part::tiles([1, 8]).halo([1, 1], [1])),
        ("`by`", Part::tiles([1, 8]).by([0])),
    ] {
        let expected = format!(
            "operation 'sum' reads store 'a' with {what} of 1 axis, and the tiles have 2 axes: give a number for each axis of the tiles"
        );
        assert_eq!(read(part), expected);
    }
    assert_eq!(
        read(Part::tiles([1 << 41, 8]).by([0, 0])),
        "operation 'sum' reads store 'a' with a number above 2^40: make its tiles, halo or offset smaller"
    );
    let far = fault(|outline| {
        let a = outline.store("a", [8], 8);
        outline.op(Operation::new("sum", [1 << 21]).read(a, Part::tiles([1 << 40])));
    });
    assert_eq!(far, "operation 'sum' reads store 'a' in tiles that end beyond 2^60: make them smaller, or launch fewer batches");
}

#[test]
fn settings_of_tiles_are_refused_on_a_whole_store() {
    // Seen to fail with settings that are ignored.
    let whole = Part::whole;
    let settings = [
        ("offset", whole().offset([8])),
        ("halo", whole().halo([1], [1])),
        ("transpose", whole().transposed()),
        ("`by`", whole().by([0])),
        ("halo", whole().halo([0], [0]).offset([0])),
    ];
    for (what, part) in settings {
        let told = fault(|outline| {
            let a = outline.store("a", [64], 8);
            outline.op(Operation::new("sum", [8]).read(a, part));
        });
        let expected = format!("operation 'sum' reads store 'a' whole, with {what}: set it on `Part::tiles`, or leave it out");
        assert_eq!(told, expected);
    }
}

#[test]
fn stores_and_operations_have_bounds() {
    assert_eq!(fault(|outline| _ = ["a", "a"].map(|name| outline.store(name, [1], 8))), "two stores are named 'a': rename one");
    let store = |shape: &[u64], bytes: u64| fault(|outline| _ = outline.store("a", shape, bytes));
    assert_eq!(store(&[1; 9], 8), "store 'a' has 9 axes, and may have 8: make one of several");
    assert_eq!(store(&[1 << 21, 1 << 21], 8), "store 'a' has more than 2^40 elements: make it smaller, or split it");
    assert_eq!(
        store(&[1], (1 << 20) + 1),
        "store 'a' has elements of more than 2^20 bytes: add an axis, and make its elements smaller"
    );
    let launch = |launch: &[u64]| fault(|outline| _ = outline.op(Operation::new("x", launch)));
    assert_eq!(launch(&[1; 9]), "operation 'x' has 9 axes, and may have 8: make one of several");
    assert_eq!(launch(&[1 << 21, 1 << 21]), "operation 'x' has more than 2^40 batches: launch fewer, with larger tiles");
    assert_eq!(
        launch(&[3, 0]),
        "operation 'x' has an axis without batches: launch at least one along each, or leave the operation out"
    );
    let mut other = Outline::new();
    let foreign = other.store("a", [1], 8);
    assert_eq!(
        fault(|outline| _ = outline.op(Operation::once("read").read(foreign, Part::whole()))),
        "operation 'read' uses a store of another outline: add it to this one"
    );
}

#[cfg(feature = "json")]
#[test]
fn faults_of_a_file_are_told_with_their_place() {
    let fault = |text: &str| Outline::from_json(text).unwrap_err().to_string();
    let ops =
        |access: &str| format!(r#"{{"stores": {{"a": [8]}}, "ops": [{{"op": "x", "launch": [4], "access": [{access}]}}]}}"#);
    assert_eq!(fault(&ops(r#"{"store": "b", "mode": "read"}"#)), "ops[0].access[0]: there is no store 'b'; there are 'a'");
    assert_eq!(
        fault(&ops(r#"{"store": "a", "mode": "reduce"}"#)),
        "ops[0].access[0]: a reduction has an operator: add \"redop\": \"add\", or its name"
    );
    assert_eq!(
        fault(&ops(r#"{"store": "a", "mode": "read", "part": {"tile": [2], "colors": [3]}}"#)),
        "ops[0].access[0]: the part has 3 tiles, and the launch of 'x' counts 4: leave `colors` out, or launch as many"
    );
    assert_eq!(
        fault(&ops(r#"{"store": "a", "mode": "look"}"#)),
        "ops[0].access[0].mode: unknown variant `look`, expected one of `read`, `write`, `reduce` at line 1 column 98"
    );
    assert_eq!(fault("{"), "EOF while parsing an object at line 1 column 1");
}
