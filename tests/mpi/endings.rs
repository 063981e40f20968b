//! Threads that communicate while their process ends: no operation starts then, and each is an error.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Result};
use futures::executor::block_on;

use crate::launch::{self, each_rank, each_rank_alone};

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

static RANK: AtomicU32 = AtomicU32::new(0);
static RANKS: AtomicU32 = AtomicU32::new(0);
static IS_AT_WORK: AtomicBool = AtomicBool::new(false);
/// The error that has ended the work of the other thread.
static ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Called at the end of the process, when MPI has ended.
extern "C" fn check() {
    let begin = Instant::now();
    let is_known = || ERROR.lock().unwrap().is_some();
    while !is_known() && begin.elapsed() < Duration::from_secs(5) {
        std::thread::yield_now();
    }
    let error = ERROR.lock().unwrap().take();
    // Nor is a further world made.
    let errors = [error, World::mpi().err().map(|error| error.to_string())];
    if errors.iter().flatten().filter(|error| error.contains("this process has come to its end, and MPI with it")).count() == 2 {
        launch::note_well(RANK.load(Ordering::Relaxed));
        launch::wait_for(RANKS.load(Ordering::Relaxed));
    } else {
        // A panic cannot leave this function.
        eprintln!("the other thread and a further world have ended with {errors:?}");
    }
}

/// Registers the check. It is called after the handlers that are registered later.
fn check_at_end() {
    if launch::is_rank() {
        // SAFETY: the function does not panic.
        assert_eq!(unsafe { atexit(check) }, 0);
    }
}

/// Ends the process while another thread of it does this again and again.
fn end_while(world: World, work: impl Fn(&World) -> Result<()> + Send + 'static) {
    RANK.store(world.rank(), Ordering::Relaxed);
    RANKS.store(world.size(), Ordering::Relaxed);
    std::thread::spawn(move || {
        let error = loop {
            let ended = work(&world);
            IS_AT_WORK.store(true, Ordering::Relaxed);
            if let Err(error) = ended {
                break error;
            }
        };
        *ERROR.lock().unwrap() = Some(format!("{error:#}"));
    });
    while !IS_AT_WORK.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    std::process::exit(0);
}

#[test]
fn collectives_are_started_while_the_process_ends() {
    // Seen to fail, as a call after MPI_Finalize, when a path that is closed began commands.
    check_at_end();
    each_rank(1, "endings::collectives_are_started_while_the_process_ends", |world| {
        end_while(world, |world| {
            block_on(Executor::inline().flow(async |f: &Flow| {
                let x = f.value("x", vec![1_u32; 100]);
                f.get(&f.all_reduce(world, "sum", &x, Sum)).await.map(drop)
            }))
        });
    });
}

#[test]
fn messages_are_sent_while_the_processes_end() {
    // Seen to fail when the work went on until MPI had ended: it was in flight, so MPI did not end.
    check_at_end();
    each_rank_alone(2, "endings::messages_are_sent_while_the_processes_end", |world| {
        end_while(world, |world| {
            block_on(Executor::inline().flow(async |f: &Flow| {
                // They go to the same rank, and are large, so that MPI ends the send with the receive.
                let own = world.rank();
                f.get(&f.send_to(world, "send", &f.value("x", vec![1_u8; 1 << 20]), own)).await?;
                f.get(&f.recv_from::<Vec<u8>>(world, "receive", own)).await.map(drop)
            }))
        });
    });
}
