//! Code that does not compile: borrows that could outlive their run, closures that do not fit a node's reads,
//! GPU code without `unsafe`, values and futures that cannot be sent to another thread. The files in
//! `tests/misuse` contain the mistakes and the compiler's messages.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
