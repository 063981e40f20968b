//! The remaining work of a stream, and the thread that does it.
//!
//! The thread is spawned for the first piece of work. It sleeps when there is no work, and only then is it
//! signalled. It takes all queued work at once, so a caller that issues fast seldom contends with it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::command::Command;
use super::execute::execute;
use super::fault::Fault;
use super::issue::{Issued, Mapped, Operation};
use super::lock;
use super::stream::Stream;
use crate::code::{Code, Outcome};

/// One position of a stream.
pub(crate) enum Work {
    Operation(Operation),
    Graph(Launched),
    /// Waits until the other stream has passed the position.
    Wait(Arc<Stream>, u64),
    /// Notes the time, for an event with times.
    Stamp(Arc<OnceLock<Instant>>, Fault),
}

/// The nodes of a graph, in an order that its edges allow.
pub(crate) struct Launched {
    /// The commands of the executable graph, which are shared until it changes.
    pub(crate) commands: Arc<Vec<Command>>,
    /// Results of issuing, by place among the commands, for those that have any.
    pub(crate) issued: Vec<(usize, Issued)>,
    pub(crate) _mapped: Mapped,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    is_asleep: bool,
    is_closing: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

impl Queue {
    /// Appends work.
    pub(crate) fn push(&self, stream: &Arc<Stream>, work: Work) -> Outcome {
        let mut state = lock(&self.state);
        if state.thread.is_none() {
            state.thread = Some(start(stream.clone())?);
        }
        state.work.push_back(work);
        if std::mem::take(&mut state.is_asleep) {
            drop(state);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Makes the thread end once it has done all queued work.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.wake.notify_one();
    }

    /// Waits for the thread to end.
    pub(crate) fn join(&self) {
        let thread = lock(&self.state).thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for work and takes all of it. Takes none if the stream is closed and all work is done.
    fn take(&self, work: &mut VecDeque<Work>) {
        let mut state = lock(&self.state);
        while state.work.is_empty() && !state.is_closing {
            state.is_asleep = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_asleep = false;
        std::mem::swap(work, &mut state.work);
    }
}

fn start(stream: Arc<Stream>) -> Outcome<JoinHandle<()>> {
    let threads = &stream.device.numbers.threads;
    // ORDERING: Relaxed: a statistic that guards no other data.
    threads.fetch_add(1, Ordering::Relaxed);
    let name = format!("soft-cuda {}.{}", stream.device.ordinal, stream.number);
    let builder = std::thread::Builder::new().name(name);
    builder.spawn(move || run(&stream)).map_err(|_| {
        threads.fetch_sub(1, Ordering::Relaxed);
        Code::UNKNOWN
    })
}

fn run(stream: &Stream) {
    let mut work = VecDeque::new();
    let mut position = 0;
    loop {
        stream.queue.take(&mut work);
        if work.is_empty() {
            break;
        }
        for piece in work.drain(..) {
            execute(stream, piece);
            position += 1;
            stream.progress.complete(position);
        }
    }
    // ORDERING: Relaxed: a statistic that guards no other data.
    stream.device.numbers.threads.fetch_sub(1, Ordering::Relaxed);
}
