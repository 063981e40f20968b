//! Loads and saves: in order, one at a time, or several side by side.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use anabranch::scope::{Streaming, TilePlace};
use anabranch::{BoxError, Executor, Graph, Plan, inputs};
use futures::executor::block_on;
use futures::future::poll_fn;

const TILES: u64 = 12;
const IN_FLIGHT: usize = 4;

/// Transfers that wait for each other until a wanted number has arrived.
#[derive(Default)]
struct Meeting {
    waiting: Vec<Waker>,
    active: usize,
    most: usize,
    order: Vec<u64>,
}

/// Waits until `wanted` transfers have arrived, possibly for ever. Then is pending once more.
async fn meet(meeting: Arc<Mutex<Meeting>>, batch: u64, wanted: usize) {
    let mut is_there = false;
    poll_fn(|cx| {
        let mut meeting = meeting.lock().unwrap();
        if is_there {
            meeting.active -= 1;
            return Poll::Ready(());
        }
        is_there = true;
        meeting.order.push(batch);
        meeting.active += 1;
        meeting.most = meeting.most.max(meeting.active);
        meeting.waiting.push(cx.waker().clone());
        if meeting.waiting.len() >= wanted {
            meeting.waiting.drain(..).for_each(Waker::wake);
        }
        Poll::Pending
    })
    .await;
}

/// Loads a store and saves it. `wanted` loads wait for each other, and so do `wanted` saves.
fn plan(wanted: usize, meetings: &[Arc<Mutex<Meeting>>; 2]) -> Plan {
    let [loads, saves] = meetings.clone();
    let mut g = Graph::new();
    let streaming = Streaming::strict().over_decompose_factor(TILES as usize).workers(1).in_flight(IN_FLIGHT);
    let done = g.scope("s", streaming, |s| {
        let a = s.store("a", [TILES as usize]);
        let load = move |place: TilePlace<1>, buffer: Vec<u8>| {
            let meeting = loads.clone();
            async move {
                meet(meeting, place.batch, wanted).await;
                Ok::<_, BoxError>(buffer)
            }
        };
        let save = move |place: TilePlace<1>, buffer: Vec<u8>| {
            let meeting = saves.clone();
            async move {
                meet(meeting, place.batch, wanted).await;
                Ok::<_, BoxError>(buffer)
            }
        };
        if wanted == 1 {
            s.load("load", &a, load);
            s.save("save", &a, save);
        } else {
            s.load_unordered("load", &a, load);
            s.save_unordered("save", &a, save);
        }
    });
    g.output("done", &done);
    g.compile().unwrap()
}

fn run(wanted: usize) {
    for workers in [0, 1, 2] {
        let exec = if workers == 0 { Executor::inline() } else { Executor::builder().workers(workers).build().unwrap() };
        let meetings = [(); 2].map(|()| Arc::new(Mutex::new(Meeting::default())));
        block_on(exec.run(&plan(wanted, &meetings), inputs! {})).unwrap();
        for meeting in meetings {
            let mut meeting = meeting.lock().unwrap();
            assert!(if wanted == 1 { meeting.most == 1 } else { meeting.most >= wanted });
            if wanted > 1 {
                meeting.order.sort_unstable();
            }
            assert!(meeting.order.iter().copied().eq(0..TILES));
        }
    }
}

#[test]
fn loads_and_saves_come_in_order_one_at_a_time() {
    run(1);
}

#[test]
fn unordered_loads_and_saves_wait_side_by_side_for_each_batch_in_flight() {
    run(IN_FLIGHT);
}
