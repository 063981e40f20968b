//! What does not compile: borrows that could outlive their run, closures that do not fit what a node reads,
//! code for a GPU without a promise, values and futures that cannot go to another thread. The files beside it
//! hold the mistakes and what the compiler says to them.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
