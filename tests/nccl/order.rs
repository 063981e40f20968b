//! Work before and after an operation, and operations in different orders on two ranks.

use anabranch::scope::Sum;
use anabranch::{Buffer, DeviceStream, HostBuffer, inputs};
use anabranch_soft_cuda::Which;
use futures::executor::block_on;

use super::ranks::{output, run_graph, uploaded, with_nccl};

// Seen to fail (as a race that the software driver finds) with memory that is given to the node before the
// event has passed.
#[test]
fn an_operation_comes_after_what_makes_its_buffer_and_before_what_reads_its_result() {
    let sums = with_nccl(2, |rank| {
        // The stream of the rank stops before each fill, and the one of NCCL before its kernel.
        rank.device.delay_operation(Which::Memset, 1, std::time::Duration::from_millis(20));
        rank.device.delay_operation(Which::Kernel, 1, std::time::Duration::from_millis(20));
        let number = rank.world.rank() as f32 + 1.0;
        let (mut g, up) = uploaded::<f32>();
        let fill = move |s: &mut DeviceStream, mut x: Buffer<f32>| {
            s.fill(&mut x, number)?;
            Ok(x)
        };
        let filled = g.try_kernel("fill", anabranch::take(&up), fill);
        let sum = g.all_reduce_on_device("sum", &filled, Sum);
        let twice = g.try_kernel(
            "twice",
            (anabranch::take(&sum), &filled),
            |s: &mut DeviceStream, mut x: Buffer<f32>, y: &Buffer<f32>| {
                s.copy(&y.slice(..1), &mut x.slice_mut(..1))?;
                Ok(x)
            },
        );
        output(&mut g, &twice);
        run_graph::<f32, f32>(&rank, &g, vec![9.0; 3]).unwrap()
    });
    assert_eq!(sums, [[1.0, 3.0, 3.0], [2.0, 3.0, 3.0]]);
}

// Seen to hang when operations did not wait for their turns.
#[test]
fn operations_that_are_ready_in_different_orders_start_in_that_of_the_plan() {
    let sums = with_nccl(2, |rank| {
        let (mut g, up) = uploaded::<f32>();
        // On each rank, another one of the two is ready first.
        let late = rank.world.rank() == 0;
        let copy = move |stalls: bool| {
            move |s: &mut DeviceStream, x: &Buffer<f32>| {
                let mut y = s.alloc(x.len())?;
                (0..if stalls { 50 } else { 1 }).try_for_each(|_| s.copy(x, &mut y))?;
                Ok(y)
            }
        };
        let [first, second] = [("a", late), ("b", !late)].map(|(name, stalls)| g.try_kernel(name, &up, copy(stalls)));
        let first = g.all_reduce_on_device("first", &first, Sum);
        let second = g.all_gather_on_device("second", &second);
        let down = g.try_kernel("down", (&first, &second), |s: &mut DeviceStream, x: &Buffer<f32>, y: &Buffer<f32>| {
            Ok([s.download(x)?, s.download(y)?])
        });
        let out = g.task("out", &down, |both: &[HostBuffer<f32>; 2]| both.each_ref().map(|one| one.to_vec()).concat());
        g.output("out", &out);
        let plan = g.compile_for(&rank.world).unwrap();
        let runs: Vec<_> =
            (0..3).map(|_| rank.exec.run(&plan, inputs! { "x" => vec![rank.world.rank() as f32 + 1.0] })).collect();
        runs.into_iter().map(|run| block_on(run).unwrap().take::<Vec<f32>>("out").unwrap().to_vec()).collect::<Vec<_>>()
    });
    assert_eq!(sums, [[[3.0, 1.0, 2.0]; 3], [[3.0, 1.0, 2.0]; 3]]);
}

// Seen to fail when the graphs were not compared before their first run.
#[test]
fn two_operations_in_different_orders_are_an_error_on_both_ranks() {
    let errors = with_nccl(2, |rank| {
        let (mut g, up) = uploaded::<f32>();
        let (first, second) = if rank.world.rank() == 0 { ("sum", "other") } else { ("other", "sum") };
        let sum = g.all_reduce_on_device(first, &up, Sum);
        let sum = g.all_reduce_on_device(second, &sum, Sum);
        output(&mut g, &sum);
        run_graph::<f32, f32>(&rank, &g, vec![1.0]).unwrap_err()
    });
    for error in errors {
        assert!(error.is_world_broken(), "{error:#}");
        assert!(format!("{error:#}").contains("the ranks disagree about node 1 of the graph"), "{error:#}");
    }
}
