//! The same with a `tokio::sync::RwLock` for each variable, and a task for each operation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, Semaphore};

use crate::ours::PENDING_MAX;
use crate::workload::Workload;

enum Guard {
    Read(OwnedRwLockReadGuard<u64>),
    Write(OwnedRwLockWriteGuard<u64>),
}

type Asked = Pin<Box<dyn Future<Output = (usize, Guard)> + Send>>;

/// A place in a variable's queue.
enum Place {
    Asked(Asked),
    Given(usize, Guard),
}

/// Returns the ns per operation.
pub(crate) fn run(workload: &Workload, workers: usize) -> f64 {
    let runtime = runtime(workers);
    let vars: Vec<Arc<RwLock<u64>>> = (0..workload.vars).map(|_| Arc::new(RwLock::new(1))).collect();
    let room = Arc::new(Semaphore::new(PENDING_MAX));
    let run_all = || {
        runtime.block_on(async {
            for (number, (write, reads)) in workload.iter().enumerate() {
                let place = room.clone().acquire_owned().await.expect("it is not closed");
                let mut asked: Vec<(usize, bool)> = reads.iter().map(|&read| (read, false)).collect();
                asked.extend(write.map(|write| (write, true)));
                // Each variable once. A variable that is read and written is locked for writing.
                asked.sort_by_key(|&(var, is_write)| (var, !is_write));
                asked.dedup_by_key(|&mut (var, _)| var);
                let reads = reads.to_vec();
                let mut places: Vec<Place> = asked.into_iter().map(|one| ask(&vars, one)).collect();
                let task = tokio::spawn(async move {
                    let mut guards = Vec::with_capacity(places.len());
                    for place in places.drain(..) {
                        guards.push(match place {
                            Place::Asked(asked) => asked.await,
                            Place::Given(var, guard) => (var, guard),
                        });
                    }
                    operate(&mut guards, &reads, write);
                    drop((guards, place));
                });
                if workload.is_awaited(number) {
                    task.await.expect("it does not panic");
                }
            }
            let _all = room.acquire_many(PENDING_MAX as u32).await.expect("it is not closed");
        });
    };
    run_all();
    let start = Instant::now();
    run_all();
    start.elapsed().as_nanos() as f64 / workload.len() as f64
}

fn runtime(workers: usize) -> Runtime {
    let mut builder = if workers == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(workers.max(1)).build().expect("threads start")
}

/// Takes a place in a variable's queue.
fn ask(vars: &[Arc<RwLock<u64>>], (var, is_write): (usize, bool)) -> Place {
    let lock = vars[var].clone();
    let mut asked: Asked = Box::pin(async move {
        let guard = if is_write { Guard::Write(lock.write_owned().await) } else { Guard::Read(lock.read_owned().await) };
        (var, guard)
    });
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready((var, guard)) => Place::Given(var, guard),
        Poll::Pending => Place::Asked(asked),
    }
}

fn operate(guards: &mut [(usize, Guard)], reads: &[usize], write: Option<usize>) {
    let value = |var: usize| {
        let place = guards.binary_search_by_key(&var, |(var, _)| *var).expect("it was asked for");
        match &guards[place].1 {
            Guard::Read(guard) => **guard,
            Guard::Write(guard) => **guard,
        }
    };
    let sum = match reads {
        [read] => value(*read).wrapping_add(1),
        _ => reads.iter().fold(0_u64, |sum, &read| sum.wrapping_add(value(read))),
    };
    let Some(write) = write else {
        std::hint::black_box(sum);
        return;
    };
    for (var, guard) in guards {
        if let (true, Guard::Write(guard)) = (*var == write, guard) {
            **guard = sum;
        }
    }
}
