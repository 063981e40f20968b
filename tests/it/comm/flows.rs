//! Communication as operations of flows.

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{BoxError, Executor, Flow, Result};

use super::each_rank;

#[test]
fn a_flow_communicates_in_loops() {
    let sums = each_rank(3, |world| async move {
        let exec = Executor::host().unwrap();
        let flow = exec.flow(async |f: &Flow| {
            let mut x = f.value("x", f64::from(world.rank() + 1));
            let mut rounds = 0;
            loop {
                let sum = f.all_reduce(&world, "sum", &x, Sum);
                if *f.get(&sum).await? > 100.0 {
                    return Ok((rounds, *f.get(&x).await?));
                }
                x = f.task("double", &x, |x: &f64| 2.0 * x);
                rounds += 1;
            }
        });
        flow.await.unwrap()
    });
    assert_eq!(sums, [(5, 32.0), (5, 64.0), (5, 96.0)]);
}

#[test]
fn all_operations_exist_for_flows() {
    // Seen to fail when an all-to-all gave the first part to all ranks.
    let all = each_rank(2, |world| async move {
        let exec = Executor::inline();
        let flow = exec.flow(async |f: &Flow| -> Result<String> {
            let (me, other) = (world.rank(), 1 - world.rank());
            let x = f.value("x", vec![10 * me, 10 * me + 1]);
            let name = f.value("name", format!("rank {me}"));
            let all = f.all_gather(&world, "all", &x);
            let part = f.reduce_scatter(&world, "part", &x, Sum);
            let swapped = f.all_to_all(&world, "swap", &x);
            let sent = f.send_to(&world, "send", &name, other);
            let received = f.recv_from::<String>(&world, "receive", other);
            let root = f.broadcast(&world, "root", &name, 1);
            let barrier = f.barrier(&world, "barrier", &root);
            f.get(&sent).await?;
            f.get(&barrier).await?;
            Ok(format!(
                "{:?} {:?} {:?} {} {}",
                f.get(&all).await?,
                f.get(&part).await?,
                f.get(&swapped).await?,
                f.get(&received).await?,
                f.get(&root).await?
            ))
        });
        flow.await.unwrap()
    });
    assert_eq!(all, ["[0, 1, 10, 11] [10] [0, 10] rank 1 rank 1", "[0, 1, 10, 11] [12] [1, 11] rank 0 rank 1"]);
}

#[test]
fn flows_that_push_in_other_orders_fail_on_both_ranks() {
    // Seen to fail when collectives were not compared.
    let errors = each_rank(2, |world| async move {
        let exec = Executor::inline();
        let flow = exec.flow(async |f: &Flow| {
            let x = f.value("x", 1_u32);
            let names = if world.rank() == 0 { ["a", "b"] } else { ["b", "a"] };
            let sums = names.map(|name| f.all_reduce(&world, name, &x, Sum));
            Ok(*f.get(&sums[0]).await? + *f.get(&sums[1]).await?)
        });
        flow.await.unwrap_err()
    });
    for error in errors {
        let text = format!("{error:#}");
        let said = "the ranks disagree about collective 0, counted from 0: on rank 0 it is 'a', all-reduce (+) of u32, 4 bytes, on rank 1 'b', all-reduce (+) of u32, 4 bytes. Every rank must";
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn an_operation_that_cannot_start_breaks_the_world() {
    let errors = each_rank(2, |world: World| async move {
        let exec = Executor::inline();
        let flow = exec.flow(async |f: &Flow| {
            let rank = world.rank();
            let x = f.try_task("x", (), move || if rank == 0 { Ok(1_u32) } else { Err(BoxError::from("no x")) });
            Ok(*f.get(&f.all_reduce(&world, "sum", &x, Sum)).await?)
        });
        flow.await.unwrap_err()
    });
    let text = format!("{:#}", errors[0]);
    assert!(text.contains("rank 1 has abandoned the run: 'sum' was not started"), "{text}");
}

#[test]
fn a_rank_outside_of_the_world_is_an_error_of_the_operation() {
    let errors = each_rank(2, |world| async move {
        let exec = Executor::inline();
        let flow = exec.flow(async |f: &Flow| Ok(*f.get(&f.recv_from::<u32>(&world, "receive", 5)).await?));
        format!("{:#}", flow.await.unwrap_err())
    });
    assert!(errors.iter().all(|error| error.contains("names rank 5, but there are 2 ranks")), "{errors:?}");
}
