//! A machine without free memory or threads: errors name the shortage, and the program goes on. Each test has
//! a process of its own, with less than it requests.

use std::sync::Arc;

use anabranch::scope::{Streaming, TileMut};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs};

use crate::support::{alone_after, block_on, chain, executors, plan, value_of};

/// 1 GB of address space, of which a new process uses little.
const LITTLE_MEMORY: &str = "ulimit -v 1000000";

/// Runs a small graph, which must succeed.
fn is_well(exec: &Executor) {
    let mut g = Graph::new();
    let first = g.task("first", (), || 1_u64);
    let last = chain(&mut g, &first, 3);
    g.output("last", &last);
    assert_eq!(*value_of::<u64>(block_on(exec.run(&plan(&g), Inputs::new())), "last"), 4);
}

// Seen to fail (the process aborts) with a copy that allocates its memory infallibly, as vectors do.
#[test]
fn a_download_on_a_host_without_memory_is_an_error() {
    alone_after("starved::a_download_on_a_host_without_memory_is_an_error", LITTLE_MEMORY, || {
        const BYTES: usize = 600 << 20;
        let mut g = Graph::new();
        let big = g.try_kernel("big", (), |s: &mut DeviceStream| Ok(s.alloc::<u8>(BYTES)?));
        let down = g.try_kernel("down", &big, |s: &mut DeviceStream, big: &Buffer<u8>| Ok(s.download(big)?));
        let len = g.task("len", &down, |down: &HostBuffer<u8>| down.len());
        g.output("len", &len);
        let exec = Executor::inline();
        let error = block_on(exec.run(&plan(&g), Inputs::new())).unwrap_err();
        assert!(error.is_out_of_memory() && error.node() == Some("down"), "{error:?}");
        assert!(format!("{error:#}").contains(&format!("the host device has no {BYTES} bytes of memory left")), "{error:#}");
        is_well(&exec);
    });
}

/// Futures that are stored in a run's memory, 50 MB each.
fn large() -> Graph {
    let mut g = Graph::new();
    let first = g.task("first", (), || 1_u8);
    let last = (0..20).fold(first, |last, number| {
        g.future(format!("{number}"), &last, async |last: Arc<u8>| {
            let large = [*last; 50 << 20];
            std::future::ready(()).await;
            Ok(large[5])
        })
    });
    g.output("last", &last);
    g
}

// Seen to fail (the process aborts) with a frame that is allocated infallibly.
#[test]
fn a_run_without_memory_for_its_values_is_an_error_and_the_executor_goes_on() {
    alone_after("starved::a_run_without_memory_for_its_values_is_an_error_and_the_executor_goes_on", LITTLE_MEMORY, || {
        let plan = plan(&large());
        for exec in executors() {
            let mut run = exec.run(&plan, Inputs::new());
            let node = run.node("first");
            let error = block_on(&mut run).unwrap_err();
            assert!(error.is_out_of_memory(), "{error:?}");
            assert!(error.to_string().contains("bytes of memory left for the values of a run"), "{error}");
            assert!(block_on(node).unwrap_err().is_out_of_memory());
            let cancelled = exec.run(&plan, Inputs::new());
            cancelled.cancel();
            assert!(block_on(cancelled).unwrap_err().is_cancelled());
            drop(exec.run(&plan, Inputs::new()));
            is_well(&exec);
            block_on(exec.shutdown()).unwrap();
        }
    });
}

// Seen to fail with the message of a run's own values, which names nothing of the scope.
#[test]
fn a_scope_without_memory_names_what_it_was_for() {
    alone_after("starved::a_scope_without_memory_names_what_it_was_for", LITTLE_MEMORY, || {
        const N: usize = 1 << 30;
        for is_kept in [true, false] {
            let mut g = Graph::new();
            g.scope("s", Streaming::strict().over_decompose_factor(1).workers(1).in_flight(1), |s| {
                let a = s.store("a", [N]);
                s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
                is_kept.then(|| s.keep(&a));
            });
            let exec = Executor::inline();
            let error = block_on(exec.run(&plan(&g), Inputs::new())).unwrap_err();
            assert!(error.is_out_of_memory() && error.node() == Some("s"), "{error:?}");
            let what = match is_kept {
                true => "store 'a', which is whole, of scope 's': keep less, or set a `memory_max`, or run fewer at once",
                false => "the tiles of scope 's': set a `memory_max`, or a smaller one, or run fewer at once",
            };
            let wanted = format!("the host has no {N} bytes of memory left for {what}");
            assert!(format!("{error:#}").contains(&wanted), "{error:#}");
            is_well(&exec);
        }
    });
}

/// Threads have stacks of 4 GB of address space, and there is address space for a few of them, one of which
/// the test may take. Seen to fail (three workers stay) with a reactor that is started after the workers.
#[cfg(feature = "cuda")]
#[test]
fn an_executor_that_gets_too_few_threads_leaves_none() {
    const STACK: u64 = 4 << 30;
    let name = "starved::an_executor_that_gets_too_few_threads_leaves_none";
    for threads in 0..=6 {
        let limit_kib = (threads * STACK + STACK / 2) >> 10;
        alone_after(name, &format!("ulimit -v {limit_kib}; export RUST_MIN_STACK={STACK}"), || {
            let device = anabranch_soft_cuda::Client::beside_this_test().unwrap().next_device();
            let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
            let before = threads();
            let built = Executor::builder().workers(3).cuda(&[device.ordinal() as u32]).build();
            match built {
                Ok(exec) => drop(exec),
                Err(refused) => {
                    let hint = "use fewer workers, or raise the limit of threads (ulimit -u)";
                    let wanted = format!("the operating system refused to start a thread of the executor: {hint}");
                    // The stream on which the device is tested is a thread of the software driver.
                    let by_driver = "the CUDA driver answered CUDA_ERROR_UNKNOWN (999)";
                    assert!([&*wanted, by_driver].contains(&&*refused.to_string()), "{refused}");
                }
            }
            // A thread of the driver may have been about to end during the count.
            crate::support::until(|| threads() <= before);
        });
    }
}
