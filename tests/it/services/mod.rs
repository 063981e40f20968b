//! What services need: deadlines, priorities, a drain, and runs as `tower` services.

use std::sync::{Arc, Mutex};

use anabranch::{Executor, Graph, Inputs, Plan, inputs};
use futures::channel::oneshot;

use crate::support::plan;

mod deadlines;
mod draining;
mod priorities;
#[cfg(feature = "tower")]
mod tower;

type Receiver = Mutex<Option<oneshot::Receiver<u32>>>;

/// Returns a plan whose run waits for a word that is sent to it, and returns it.
fn waiting() -> Plan {
    let mut g = Graph::new();
    let receiver = g.input::<Receiver>("receiver");
    let word = g.future("wait", &receiver, |receiver: Arc<Receiver>| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        async move { Ok(receiver.await?) }
    });
    g.output("word", &word);
    plan(&g)
}

fn letter() -> (oneshot::Sender<u32>, Inputs) {
    let (sender, receiver) = oneshot::channel();
    (sender, inputs! { "receiver" => Mutex::new(Some(receiver)) })
}

/// Returns executors that have one run in flight at a time.
fn one_at_a_time() -> [Executor; 3] {
    [0, 1, 2].map(|workers| Executor::builder().workers(workers).max_in_flight(1).build().unwrap())
}
