//! Ranks that fail or leave while others wait on their GPUs: the communicators are aborted on all ranks, the
//! errors name the rank and the node, and nothing is left.

use std::future::Future;
use std::task::{Context, Waker};

use anabranch::graph::Peer;
use anabranch::scope::{Max, Sum};
use anabranch::{Error, inputs};
use anabranch_soft_cuda::{Code, Which};
use futures::executor::block_on;

use super::ranks::{NCCL, Rank, each_rank, each_rank_and_device, output, run, until, uploaded, with_nccl};

/// Runs one all-reduce.
fn sum(rank: &Rank, x: Vec<f32>) -> Result<Vec<f32>, Error> {
    run(rank, x, |g, x| g.all_reduce_on_device("sum", x, Sum))
}

// Seen to fail (as ranks that wait for ever) with an abort that calls nothing.
#[test]
fn an_operation_that_fails_on_one_rank_aborts_all() {
    let errors = with_nccl(3, |rank| {
        assert!(sum(&rank, vec![1.0]).is_ok());
        let aborted = NCCL.aborted(rank.gpu());
        if rank.world.rank() == 1 {
            NCCL.fail_operation(rank.gpu(), 1, 6);
        }
        let error = sum(&rank, vec![1.0]).unwrap_err();
        until(|| NCCL.aborted(rank.gpu()) == aborted + 1);
        error
    });
    for error in errors {
        assert!(error.is_world_broken(), "{error:#}");
        assert_eq!(error.node(), Some("sum"));
        let text = format!("{error:#}");
        assert!(text.contains("NCCL on rank 1: an operation: remote process exited or there was a network error (6)"), "{text}");
    }
}

/// Lets the kernel of the first operation stop on rank 1, and drops the run there, while rank 0 waits.
/// Returns how the run of rank 0 ends.
fn dropped_while_at_work(operations: usize) -> Result<(), Error> {
    let results = with_nccl(2, |rank| {
        let (mut g, up) = uploaded::<f32>();
        let names = ["sum", "behind"].into_iter().take(operations);
        let sum = names.fold(up, |x, name| g.all_reduce_on_device(name, &x, Sum));
        output(&mut g, &sum);
        let plan = g.compile_for(&rank.world).unwrap();
        if rank.world.rank() == 0 {
            return Some(block_on(rank.exec.run(&plan, inputs! { "x" => vec![1.0_f32] })).map(drop));
        }
        rank.device.stall_operation(Which::Kernel, 1);
        let mut run = Box::pin(rank.exec.run(&plan, inputs! { "x" => vec![1.0_f32] }));
        let mut cx = Context::from_waker(Waker::noop());
        until(|| {
            assert!(run.as_mut().poll(&mut cx).is_pending());
            rank.device.counters().stalled == 1
        });
        drop(run);
        // What follows from the drop comes before the kernel goes on.
        until(|| rank.exec.stats().runs_in_flight == 0 && (operations == 1 || NCCL.live(rank.gpu()) == 0));
        // Its buffers are still there.
        assert!(rank.device.counters().allocations >= 2);
        rank.device.release_stall();
        None
    });
    results.into_iter().flatten().next().unwrap()
}

// Seen to fail (as memory that is freed without an order) with buffers that are dropped at the abort.
#[test]
fn a_run_that_is_dropped_aborts_what_other_ranks_wait_for() {
    let error = dropped_while_at_work(2).unwrap_err();
    assert_eq!((error.rank(), error.node()), (Some(1), Some("sum")), "{error:#}");
}

// Seen to fail when a run kept its place in the order after its last operation had begun.
#[test]
fn a_run_that_is_dropped_after_its_last_operation_has_begun_still_gives_its_part() {
    dropped_while_at_work(1).unwrap();
}

// Seen to hang when an event of a lost device counted as passed.
#[test]
fn a_device_that_is_lost_ends_the_operations_of_all_ranks() {
    // No operation of a lost device has an order any more, so there are violations.
    let (errors, _) = each_rank_and_device(2, |rank| {
        block_on(rank.world.use_nccl(rank.gpu())).unwrap();
        if rank.world.rank() == 1 {
            rank.device.fail_operation(Which::Kernel, 1, Code::ILLEGAL_ADDRESS);
        }
        sum(&rank, vec![1.0]).unwrap_err()
    });
    for error in errors {
        let text = format!("{error:#}");
        assert!(error.is_world_broken() && text.contains("NCCL on rank 1: CUDA device"), "{text}");
    }
}

// Seen to hang when a rank that left broke no world.
#[test]
fn a_rank_that_never_comes_and_leaves_ends_the_others() {
    let errors = with_nccl(2, |rank| if rank.world.rank() == 0 { Some(sum(&rank, vec![1.0]).unwrap_err()) } else { None });
    let error = errors.into_iter().flatten().next().unwrap();
    assert_eq!((error.rank(), error.node()), (Some(1), Some("sum")), "{error:#}");
}

// Seen to hang when the lengths were not compared.
#[test]
fn lengths_that_differ_are_an_error_before_nccl_sees_them() {
    let errors = with_nccl(2, |rank| sum(&rank, vec![1.0; 2 + rank.world.rank() as usize]).unwrap_err());
    let texts = errors.map_texts();
    assert!(texts[0].contains("rank 0 gives 2 elements, and rank 1 gives 3: let all ranks give equally many"), "{texts:?}");
    let parts = with_nccl(2, |rank| run(&rank, vec![1.0_f32; 3], |g, x| g.reduce_scatter_on_device("part", x, Sum)).unwrap_err());
    assert!(parts.map_texts()[0].contains("3 elements cannot be divided among 2 ranks"), "{:?}", parts.map_texts());
}

// Seen to fail (as a panic) when each world was taken for one with NCCL.
#[test]
fn a_world_without_nccl_and_a_buffer_of_a_host_are_errors() {
    let errors = each_rank(1, |rank| sum(&rank, vec![1.0]).unwrap_err());
    assert!(errors.map_texts()[0].contains("await `World::use_nccl` before the run"), "{:?}", errors.map_texts());
    let errors = with_nccl(1, |rank| {
        let (mut g, up) = uploaded::<f32>();
        let sum = g.all_reduce_on_device("sum", &up, Sum);
        output(&mut g, &sum);
        let plan = g.compile_for(&rank.world).unwrap();
        block_on(anabranch::Executor::inline().run(&plan, inputs! { "x" => vec![1.0_f32] })).map(drop).unwrap_err()
    });
    assert!(errors.map_texts()[0].contains("its buffer is in the memory of a host"), "{:?}", errors.map_texts());
}

// Seen to fail when the error broke the world.
#[test]
fn a_gpu_that_is_not_there_is_an_error_on_all_ranks_and_leaves_the_world_whole() {
    let errors = each_rank(2, |rank| {
        let gpu = if rank.world.rank() == 1 { 4000 } else { rank.gpu() };
        let error = block_on(rank.world.use_nccl(gpu)).unwrap_err();
        assert!(rank.world.error().is_none());
        block_on(rank.world.use_nccl(rank.gpu())).unwrap();
        let again = block_on(rank.world.use_nccl(rank.gpu())).unwrap_err();
        assert_eq!(sum(&rank, vec![1.0]).unwrap(), [2.0]);
        [error, again]
    });
    for [error, again] in errors {
        let text = format!("{error:#}");
        assert!(text.starts_with("NCCL cannot be used: on rank 1 of 2: there is no CUDA device 4000"), "{text}");
        assert!(format!("{again:#}").contains("the world has it already"), "{again:#}");
    }
}

// Seen to fail when the fault of the world was an error of NCCL, which names no rank.
#[test]
fn a_rank_that_does_not_start_nccl_and_leaves_ends_the_start_of_the_others() {
    let errors = each_rank(2, |rank| {
        let start = rank.world.use_nccl(rank.gpu());
        if rank.world.rank() == 0 { Some(block_on(start).unwrap_err()) } else { None }
    });
    let error = errors.into_iter().flatten().next().unwrap();
    assert_eq!(error.rank(), Some(1), "{error:#}");
}

// Seen to fail when a graph with such an operator was compiled.
#[test]
fn operators_and_peers_that_nccl_does_not_have_are_errors_when_the_graph_is_compiled() {
    let texts = each_rank(2, |rank| {
        let (mut g, up) = uploaded::<f32>();
        let max = g.all_reduce_on_device("max", &up, Max);
        output(&mut g, &max);
        let max = g.compile_for(&rank.world).unwrap_err().to_string();
        let (mut g, up) = uploaded::<f32>();
        let halo = g.send_recv_on_device("halo", &up, Peer::ring(1), Peer::next());
        g.output("halo", &halo);
        [max, g.compile_for(&rank.world).unwrap_err().to_string()]
    });
    for [max, halo] in texts {
        assert!(max.contains("node 'max' is an all-reduce") && max.contains("which NCCL does not have"), "{max}");
        assert_eq!(halo, "node 'halo' sends to rank 1 on rank 0, but does not receive from rank 0 there");
    }
}

trait Texts {
    fn map_texts(&self) -> Vec<String>;
}

impl Texts for Vec<Error> {
    fn map_texts(&self) -> Vec<String> {
        self.iter().map(|error| format!("{error:#}")).collect()
    }
}
