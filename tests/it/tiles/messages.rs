//! What wrong outlines get: an error that names the thing.

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
    assert_eq!(read(Part::tiles([8])), "operation 'sum' reads store 'a' in tiles of 1 axis, and the store has 2 axes");
    assert_eq!(
        read(Part::tiles([2, 8])),
        "operation 'sum' reads store 'a' in tiles that axis 1 of the launch counts, and the launch has 1 axis"
    );
    assert_eq!(read(Part::tiles([0, 8]).by([0, 0])), "operation 'sum' reads store 'a' in tiles without elements");
    assert_eq!(
        read(Part::tiles([1, 8]).by([0, 0]).offset([1])),
        "operation 'sum' reads store 'a' with offset of 1 axis, and the tiles have 2 axes"
    );
    assert_eq!(read(Part::tiles([1 << 41, 8]).by([0, 0])), "operation 'sum' reads store 'a' with a number above 2^40");
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
    assert_eq!(fault(|outline| _ = outline.store("a", [1; 9], 8)), "store 'a' has 9 axes, and may have 8");
    assert_eq!(fault(|outline| _ = outline.store("a", [1 << 21, 1 << 21], 8)), "store 'a' has more than 2^40 elements");
    assert_eq!(fault(|outline| _ = outline.op(Operation::new("none", [3, 0]))), "operation 'none' has an axis without batches");
    let mut other = Outline::new();
    let foreign = other.store("a", [1], 8);
    assert_eq!(
        fault(|outline| _ = outline.op(Operation::once("read").read(foreign, Part::whole()))),
        "operation 'read' uses a store of another outline"
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
        "ops[0].access[0]: the part has 3 tiles, and the launch of 'x' counts 4"
    );
    assert_eq!(
        fault(&ops(r#"{"store": "a", "mode": "look"}"#)),
        "ops[0].access[0].mode: unknown variant `look`, expected one of `read`, `write`, `reduce` at line 1 column 98"
    );
    assert_eq!(fault("{"), "EOF while parsing an object at line 1 column 1");
}
