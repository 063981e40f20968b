//! States and feedback that are read as values are.

use anabranch::{Pipeline, Ranked, Value};

fn main() {
    let _ = Pipeline::new("line", &Ranked::default(), |g, item: Value<u64>| {
        let mut state = g.state("state", || 0u64);
        let before = g.feedback("before", || 0u64);
        let one = g.task("feedback", (&item, &before), |x: &u64, y: &u64| x + y);
        let two = g.task("only feedback", &before, |x: &u64| *x);
        let three = g.task("state", (&state, &one), |state: &u64, x: &u64| state + x);
        let four = g.task("only state", &state, |state: &u64| *state);
        (one, two, three, four)
    });
}
