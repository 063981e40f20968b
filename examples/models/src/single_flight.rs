//! One run for all tasks that ask for its result. At most one task at a time is the leader, which runs the
//! plan. The others wait until the leader ends.

use std::fmt;
use std::future::poll_fn;
use std::mem::replace;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anabranch::{Executor, Inputs, Plan, Result};

use crate::sync::{Mutex, lock};

/// A value that a plan computes when the first task asks for it. Tasks that ask meanwhile share the run.
///
/// ```
/// use anabranch::{Executor, Graph};
/// use anabranch_example_models::SingleFlight;
///
/// let mut g = Graph::new();
/// let total = g.task("total", (), || [20, 22].iter().sum::<i32>());
/// g.output("total", &total);
/// let total = SingleFlight::<i32>::new(&Executor::inline(), &g.compile()?, "total");
/// let (one, other) = futures::executor::block_on(async { futures::join!(total.get(), total.get()) });
/// assert_eq!((*one?, *other?), (42, 42));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct SingleFlight<T> {
    exec: Executor,
    plan: Plan,
    output: String,
    state: Mutex<State<T>>,
}

enum State<T> {
    /// The next task that asks becomes the leader.
    Empty,
    /// There is a leader. These tasks wait for it.
    Running(Vec<Waker>),
    Ready(Arc<T>),
}

/// The answer to a task that asks.
enum Asked<'a, T> {
    Value(Arc<T>),
    Lead(Lead<'a, T>),
}

impl<T: Send + Sync + 'static> SingleFlight<T> {
    /// Returns a value that is the output of this name of runs of `plan`. Nothing runs yet.
    pub fn new(exec: &Executor, plan: &Plan, output: &str) -> Self {
        Self { exec: exec.clone(), plan: plan.clone(), output: output.to_owned(), state: Mutex::new(State::Empty) }
    }

    /// Returns the value, from a run that is shared with all tasks that ask meanwhile.
    ///
    /// # Errors
    /// The run's. Only the task that began the run gets it; one of the others runs the plan again.
    ///
    /// # Cancellation
    /// If the task that began the run drops this future, the run is cancelled, and one of the others runs the
    /// plan again.
    pub async fn get(&self) -> Result<Arc<T>> {
        let lead = match poll_fn(|cx| self.poll_asked(cx)).await {
            Asked::Value(value) => return Ok(value),
            Asked::Lead(lead) => lead,
        };
        let mut outputs = self.exec.run(&self.plan, Inputs::new()).await?;
        let value = outputs.take::<T>(&self.output)?;
        lead.end(State::Ready(value.clone()));
        Ok(value)
    }

    fn poll_asked(&self, cx: &Context<'_>) -> Poll<Asked<'_, T>> {
        // One critical section. With two, both tasks could find the state empty, or the leader could end
        // before the waker is in the list.
        let mut state = lock(&self.state);
        match &mut *state {
            State::Ready(value) => Poll::Ready(Asked::Value(value.clone())),
            State::Running(waiting) => {
                if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
            State::Empty => {
                *state = State::Running(Vec::new());
                Poll::Ready(Asked::Lead(Lead { of: self }))
            }
        }
    }
}

/// The right to run the plan. It ends with a value, or without one if it is dropped.
struct Lead<'a, T> {
    of: &'a SingleFlight<T>,
}

impl<T> Lead<'_, T> {
    fn end(&self, state: State<T>) {
        // The lock is released before the wakers are called: a waker is foreign code.
        let before = replace(&mut *lock(&self.of.state), state);
        if let State::Running(waiting) = before {
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Drop for Lead<'_, T> {
    fn drop(&mut self) {
        let is_running = matches!(&*lock(&self.of.state), State::Running(_));
        // No other task ends that state, so the lock may be released in between.
        if is_running {
            self.end(State::Empty);
        }
    }
}

impl<T> fmt::Debug for SingleFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").field("output", &self.output).finish_non_exhaustive()
    }
}
