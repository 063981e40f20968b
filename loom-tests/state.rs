//! Cancel, completion and drop of one run: exactly one of them wins, and the result does not change any more.

use std::sync::Arc;

use super::harness::{check, join, spawn};
use crate::run::state::{CANCELLED, DONE, SHUT_DOWN, State};

// Seen to fail with any of: a `cancel` that does not check for DONE; one that does not check for CANCELLED
// ("two winners"); one without an exchange; a `complete` made of a load and a store.
#[test]
fn exactly_one_of_cancel_completion_and_shutdown_wins() {
    check(|| {
        let state = Arc::new(State::new(0));
        let cancelling = {
            let state = state.clone();
            spawn(move || state.cancel(0))
        };
        let closing = {
            let state = state.clone();
            spawn(move || state.cancel(SHUT_DOWN))
        };
        let verdict = state.complete().expect("nobody else completes it");
        let is_cancelled = join(cancelling);
        let is_shut_down = join(closing);

        assert!(!(is_cancelled && is_shut_down), "two winners");
        assert_eq!(verdict & CANCELLED != 0, is_cancelled || is_shut_down, "who cancels first is the verdict");
        assert_eq!(verdict & SHUT_DOWN != 0, is_shut_down, "who lost leaves no trace");
        assert_eq!(state.glance(), verdict | DONE, "after completion it keeps the result");
        assert!(!state.cancel(0) && state.complete().is_none(), "and nobody wins twice");
    });
}

// Seen to fail with a `complete` made of a load and a store.
#[test]
fn a_run_completes_once() {
    check(|| {
        let state = Arc::new(State::new(0));
        let other = {
            let state = state.clone();
            spawn(move || state.complete().is_some())
        };
        let is_first = state.complete().is_some();
        assert!(is_first != join(other));
    });
}
