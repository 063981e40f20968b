//! Each operation on device memory makes what the same operation makes of values of the host.

use anabranch::comm::World;
use anabranch::device::Element;
use anabranch::graph::{Peer, times};
use anabranch::scope::{Max, Min, Operator, Product, Sum};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Value, inputs};
use bytemuck::Pod;
use futures::executor::block_on;
use futures::future::join_all;

use super::ranks::{run, run_graph, uploaded, with_nccl};

const RANKS: u32 = 3;

/// Runs the same on values of the host.
fn on_host<T: Pod + Send + Sync>(
    given: impl Fn(u32) -> Vec<T>,
    build: impl Fn(&mut Graph, &Value<Vec<T>>) -> Value<Vec<T>>,
) -> Vec<Vec<T>> {
    let rank = |world: World| {
        let mut g = Graph::new();
        let x = g.input::<Vec<T>>("x");
        let made = build(&mut g, &x);
        g.output("out", &made);
        let (plan, given) = (g.compile_for(&world).unwrap(), given(world.rank()));
        async move { Executor::inline().run(&plan, inputs! { "x" => given }).await.unwrap().take::<Vec<T>>("out").unwrap().to_vec() }
    };
    block_on(join_all(World::local(RANKS).unwrap().into_iter().map(rank)))
}

fn bits<T: Pod>(values: &[Vec<T>]) -> Vec<&[u8]> {
    values.iter().map(|values| bytemuck::cast_slice(values)).collect()
}

/// Compares the reductions of one type with those of the host.
fn reductions<T: Element + Pod, O: Operator<T> + Copy>(operator: O, number: impl Fn(u32) -> T + Copy + Sync) {
    let given = |rank: u32| (0..12).map(|at| number(rank * 12 + at)).collect::<Vec<T>>();
    let device =
        with_nccl(RANKS, |rank| run(&rank, given(rank.world.rank()), |g, x| g.all_reduce_on_device("sum", x, operator)).unwrap());
    assert_eq!(bits(&device), bits(&on_host(given, |g, x| g.all_reduce("sum", x, operator))));
    let device = with_nccl(RANKS, |rank| {
        run(&rank, given(rank.world.rank()), |g, x| g.reduce_scatter_on_device("part", x, operator)).unwrap()
    });
    assert_eq!(bits(&device), bits(&on_host(given, |g, x| g.reduce_scatter("part", x, operator))));
}

// Seen to fail with the numbers of `Min` and `Max` exchanged.
#[test]
fn reductions_make_the_same_bits_as_on_the_host() {
    reductions(Sum, |number| (number as f32).sqrt());
    reductions(Product, |number| 1.0 + 1.0 / f64::from(number + 1));
    reductions(Sum, |number| number as u8);
    reductions(Min, |number| 5 - number as i8);
    reductions(Max, |number| 5 - number as i32);
    reductions(Sum, |number| number);
    reductions(Sum, |number| -i64::from(number));
    reductions(Max, |number| u64::from(number) << 40);
}

// Seen to fail when rank 0 was the root of all broadcasts.
#[test]
fn gathers_and_broadcasts_make_the_same_bits_as_on_the_host() {
    let given = |rank: u32| (0..5).map(|at| (rank * 5 + at) as f32 * 0.3).collect::<Vec<f32>>();
    let device = with_nccl(RANKS, |rank| run(&rank, given(rank.world.rank()), |g, x| g.all_gather_on_device("all", x)).unwrap());
    assert_eq!(bits(&device), bits(&on_host(given, |g, x| g.all_gather("all", x))));
    let device =
        with_nccl(RANKS, |rank| run(&rank, given(rank.world.rank()), |g, x| g.broadcast_on_device("of 1", x, 1)).unwrap());
    assert_eq!(bits(&device), bits(&on_host(given, |g, x| g.broadcast("of 1", x, 1))));
}

/// Runs an exchange of buffers whose lengths differ.
fn exchanged(to: fn() -> Peer, from: fn() -> Peer) -> Vec<Option<Vec<u16>>> {
    with_nccl(RANKS, |rank| {
        let (mut g, up) = uploaded::<u16>();
        let got = g.send_recv_on_device("halo", &up, to(), from());
        let down = g.try_kernel("down", &got, |s: &mut DeviceStream, x: &Option<Buffer<u16>>| {
            Ok(x.as_ref().map(|x| s.download(x)).transpose()?)
        });
        let out = g.task("out", &down, |x: &Option<HostBuffer<u16>>| x.as_ref().map(|x| x.to_vec()));
        g.output("out", &out);
        let (number, plan) = (rank.world.rank() as u16, g.compile_for(&rank.world).unwrap());
        let x = vec![number; 2 + usize::from(number)];
        let mut outputs = block_on(rank.exec.run(&plan, inputs! { "x" => x })).unwrap();
        (*outputs.take::<Option<Vec<u16>>>("out").unwrap()).clone()
    })
}

// Seen to fail when a receive had the length of its own rank.
#[test]
fn neighbours_exchange_buffers_of_different_lengths() {
    let ring = exchanged(|| Peer::ring(1), || Peer::ring(-1));
    assert_eq!(ring, [Some(vec![2; 4]), Some(vec![0; 2]), Some(vec![1; 3])]);
    let line = exchanged(Peer::next, Peer::previous);
    assert_eq!(line, [None, Some(vec![0; 2]), Some(vec![1; 3])]);
}

// Seen to fail when an empty buffer counted as one element.
#[test]
fn one_rank_and_no_elements_work_as_well() {
    let sums = with_nccl(1, |rank| run(&rank, vec![4_i32, 5], |g, x| g.all_reduce_on_device("sum", x, Sum)).unwrap());
    assert_eq!(sums, [[4, 5]]);
    let sums = with_nccl(2, |rank| run(&rank, Vec::<f32>::new(), |g, x| g.all_gather_on_device("all", x)).unwrap());
    assert_eq!(sums, [[0.0; 0]; 2]);
}

// Seen to hang when the turns of an iteration were those of the next one.
#[test]
fn a_plan_communicates_in_every_run_and_in_every_iteration() {
    let sums = with_nccl(2, |rank| {
        let (mut g, up) = uploaded::<f32>();
        let four = g.repeat("loop", &up, times(2), |b, x| {
            let sum = b.all_reduce_on_device("sum", &x, Sum);
            b.try_kernel("copy", &sum, |s: &mut DeviceStream, x: &Buffer<f32>| {
                let mut y = s.alloc(x.len())?;
                s.copy(x, &mut y)?;
                Ok(y)
            })
        });
        super::ranks::output(&mut g, &four);
        [1.0_f32, 2.0, 3.0].map(|x| run_graph::<f32, f32>(&rank, &g, vec![x]).unwrap()[0])
    });
    assert_eq!(sums, [[4.0, 8.0, 12.0]; 2]);
}
