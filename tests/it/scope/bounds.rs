//! Memory: a scope never has more than its plan says, and its plan never says more than it may have.

use anabranch::scope::{ScopePlan, Streaming};
use anabranch::{Executor, Graph, Plan, Result, inputs};

use super::program::Program;
use super::random::{draw, rounds};
use crate::dice::Dice;

fn compile<const N: usize>(program: &Program<N>, streaming: Streaming) -> Result<Plan> {
    let mut g = Graph::new();
    let ((one, other, scalars), _) = program.scope(&mut g, streaming);
    g.output("one", &one);
    g.output("other", &other);
    g.output("scalars", &scalars);
    g.compile()
}

fn scope(plan: &Plan) -> &ScopePlan {
    plan.scope("program").unwrap()
}

/// Returns the least bound that an error names.
fn least(error: &anabranch::Error) -> u64 {
    let text = error.to_string();
    let (_, bytes) = text.rsplit_once("allow ").unwrap_or_else(|| panic!("{text}"));
    bytes.parse().unwrap()
}

#[test]
fn bounds_hold_from_the_least_to_the_whole_and_one_byte_less_is_refused() {
    let exec = Executor::builder().workers(2).build().unwrap();
    for seed in rounds(100) {
        println!("seed {seed}");
        let mut dice = Dice::new(seed + 1000);
        let program = draw::<2>(&mut dice);
        let streaming = Streaming::relaxed().over_decompose_factor(1 + dice.below(9)).workers(2);
        let whole = scope(&compile(&program, streaming).unwrap()).peak_bytes();
        let least = least(&compile(&program, streaming.memory_max(0)).unwrap_err());
        compile(&program, streaming.memory_max(least - 1)).unwrap_err();
        for bound in [least, least + (whole.max(least) - least) / 3, whole.max(least)] {
            let plan = compile(&program, streaming.memory_max(bound)).unwrap();
            assert!(scope(&plan).peak_bytes() <= bound, "{}", scope(&plan));
            futures::executor::block_on(exec.run(&plan, inputs! {})).unwrap();
        }
    }
}
