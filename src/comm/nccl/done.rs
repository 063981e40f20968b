//! The end of something that the thread does for a future. The thread sets it once.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

pub(super) struct Done<T>(Mutex<State<T>>);

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Done<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { value: None, waker: None })))
    }

    pub(super) fn set(&self, value: T) {
        let waker = {
            let mut state = lock(&self.0);
            state.value = Some(value);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits for the value, and takes it.
    pub(super) async fn get(&self) -> T {
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            if let Some(value) = state.value.take() {
                return Poll::Ready(value);
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}
