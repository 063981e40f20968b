//! Operations that are dropped or fail before all of their parts were started: the other ranks get an error
//! that names the operation and the rank.

use std::borrow::Cow;
use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use anabranch::comm::{Elements, Wire, World};
use anabranch::scope::{Sum, operator};
use anabranch::{BoxError, Executor, Flow, Result, Var, take};
use futures::executor::block_on;

use crate::launch::{self, each_rank, each_rank_alone};

/// Checks that the other rank has abandoned `name`, and why.
fn check<T: Debug>(ended: Result<T>, name: &str, why: &str) {
    let error = ended.expect_err("rank 0 has abandoned it");
    let text = format!("{error:#}");
    assert!(error.is_world_broken() && error.rank() == Some(0), "{text}");
    assert!(text.contains(name) && text.contains(why), "{text}");
}

/// Lets rank 0 wait until the others have come so far. Without this, it was seen to break the world before
/// rank 1 had its last value.
fn wait_for_the_others(world: &World, event: &str) {
    match world.rank() {
        0 => (1..world.size()).for_each(|rank| launch::wait_for_note(&format!("{event}-{rank}"))),
        rank => launch::note(&format!("{event}-{rank}")),
    }
}

/// Lets rank 0 drop an operation of two steps before the others start it. The ranks know the operation: one
/// that is new to them does not start before all have come to it.
fn drop_between_steps(ranks: u32, test: &str, push: impl Fn(&Flow, &World) -> Var<Vec<u32>> + Send + Sync + 'static) {
    each_rank_alone(ranks, test, move |world| {
        let exec = Executor::inline();
        let flow = || {
            exec.flow(async |f: &Flow| {
                f.get(&push(f, &world)).await?;
                // The root of a broadcast may end without the others.
                let x = f.value("x", 1_u32);
                Ok(*f.get(&f.all_reduce(&world, "next", &x, Sum)).await?)
            })
        };
        (0..2).for_each(|_| assert_eq!(block_on(flow()).unwrap(), ranks));
        // The other ranks may come to the end of the last operation later.
        wait_for_the_others(&world, "ready");
        let flow = flow();
        if world.rank() == 0 {
            {
                let mut flow = pin!(flow);
                assert!(flow.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            launch::note("dropped");
            // The next operation does not start, either.
            let next = block_on(exec.flow(async |f: &Flow| {
                let x = f.value("x", 1_u32);
                Ok(*f.get(&f.all_reduce(&world, "next", &x, Sum)).await?)
            }));
            check(next, "'two steps'", "was dropped before all of its parts were started");
        } else {
            launch::wait_for_note("dropped");
            check(block_on(flow), "'two steps'", "was dropped before all of its parts were started");
        }
    });
}

// Seen to fail when the drop of an operation only let the next one start.
#[test]
fn a_gather_is_dropped_between_its_steps() {
    drop_between_steps(2, "abandoned::a_gather_is_dropped_between_its_steps", |f, world| {
        let x = f.value("x", vec![7_u32; 1 + world.rank() as usize]);
        f.all_gather(world, "two steps", &x)
    });
}

#[test]
fn a_reduction_of_an_operator_is_dropped_between_its_steps() {
    // Two ranks reduce in one step. The value is too large to go with its comparison.
    drop_between_steps(3, "abandoned::a_reduction_of_an_operator_is_dropped_between_its_steps", |f, world| {
        let x = f.value("x", vec![7_u32; 20]);
        f.all_reduce(world, "two steps", &x, operator("last", || 0, |_, last| last))
    });
}

#[test]
fn a_broadcast_is_dropped_between_its_steps() {
    // Rank 0 is not the root: the root may complete its first step alone.
    drop_between_steps(2, "abandoned::a_broadcast_is_dropped_between_its_steps", |f, world| {
        let x = f.value("x", vec![7_u32]);
        f.broadcast(world, "two steps", &x, 1)
    });
}

/// A value whose encoding panics on rank 0.
struct Unsendable(u32);

impl Wire for Unsendable {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        assert!(self.0 != 0, "rank 0 has no bytes");
        Ok(vec![7].into())
    }

    fn from_wire(_: &[u8]) -> Result<Self, BoxError> {
        Ok(Self(1))
    }
}

#[test]
fn an_encoding_panics() {
    each_rank_alone(2, "abandoned::an_encoding_panics", |world| {
        let rank = world.rank();
        let ended = block_on(Executor::inline().flow(async |f: &Flow| {
            let x = f.value("x", Unsendable(rank));
            Ok(f.get(&f.broadcast(&world, "first", &x, 0)).await?.0)
        }));
        if rank == 0 {
            ended.unwrap_err();
        } else {
            check(ended, "'first'", "panicked before all of its parts were started");
        }
    });
}

/// A value that counts the calls of its encoding in its bytes.
struct Counted(std::sync::atomic::AtomicU8);

impl Wire for Counted {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(vec![self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        Ok(Self(bytes.first().copied().unwrap_or_default().into()))
    }
}

#[test]
fn a_value_is_encoded_once() {
    // Seen to fail when the root decoded the bytes of a second call.
    each_rank(2, "abandoned::a_value_is_encoded_once", |world| {
        let number = block_on(Executor::inline().flow(async |f: &Flow| {
            let x = f.value("x", Counted(5.into()));
            let first = f.broadcast(&world, "first", &x, 0);
            let first = f.get(&first).await?.0.load(std::sync::atomic::Ordering::Relaxed);
            // Seen to fail when the root got the value that it had given.
            let x = f.value("x", Counted(7.into()));
            let second = f.broadcast(&world, "second", take(&x), 0);
            Ok((first, f.get(&second).await?.0.load(std::sync::atomic::Ordering::Relaxed)))
        }));
        assert_eq!(number.unwrap(), (5, 7));
    });
}

/// Numbers that have no bytes if the first one is 13.
struct Numbers(Vec<u32>);

/// The number of their encodings in this process.
static ENCODINGS: AtomicU32 = AtomicU32::new(0);

impl Wire for Numbers {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        if self.0[0] == 13 { Err("an unlucky number".into()) } else { self.0.to_wire() }
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        Wire::from_wire(bytes).map(Self)
    }
}

impl Elements for Numbers {
    type Item = u32;

    fn elements(&self) -> &[u32] {
        &self.0
    }

    fn from_elements(elements: Vec<u32>) -> Result<Self, BoxError> {
        Ok(Self(elements))
    }
}

#[test]
fn an_encoding_of_a_known_reduction_fails() {
    // Seen to fail when the comparison encoded the value once more, and when the failure did not break the
    // world.
    each_rank_alone(2, "abandoned::an_encoding_of_a_known_reduction_fails", |world| {
        let sum = |x: u32| {
            block_on(Executor::inline().flow(async |f: &Flow| {
                // They are too many to go with their comparison.
                let x = f.value("x", Numbers([x, 1].repeat(600)));
                Ok(f.get(&f.all_reduce(&world, "sum", &x, Sum)).await?.0.clone())
            }))
        };
        // The ranks know the operation then: it is started beside its comparison.
        (0..3).for_each(|_| assert_eq!(sum(2).unwrap(), [4, 2].repeat(600)));
        assert_eq!(ENCODINGS.load(Ordering::Relaxed), 3);
        wait_for_the_others(&world, "come-so-far");
        if world.rank() == 0 {
            let text = format!("{:#}", sum(13).unwrap_err());
            assert!(text.contains("'sum'") && text.contains("an unlucky number"), "{text}");
        } else {
            check(sum(2), "'sum'", "an unlucky number");
        }
    });
}

/// Bytes whose drop panics where they were made.
struct Bomb {
    bytes: Vec<u8>,
    is_armed: bool,
}

impl Wire for Bomb {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(Cow::Borrowed(&self.bytes))
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        Ok(Self { bytes: bytes.to_vec(), is_armed: false })
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.is_armed, "a drop that panics");
    }
}

#[test]
fn a_value_whose_drop_panics_behind_its_send_harms_no_other_request() {
    // Seen to fail without the guard of ends.
    each_rank(2, "abandoned::a_value_whose_drop_panics_behind_its_send_harms_no_other_request", |world| {
        let sum = block_on(Executor::inline().flow(async |f: &Flow| {
            let start = f.value("start", ());
            if world.rank() == 0 {
                let bomb = f.value("x", Bomb { bytes: vec![7; 1 << 20], is_armed: true });
                // It ends before it is received.
                f.get(&f.send_to(&world, "bomb", take(&bomb), 1)).await?;
                f.get(&f.barrier(&world, "sent", &start)).await?;
            } else {
                f.get(&f.barrier(&world, "sent", &start)).await?;
                assert_eq!(f.get(&f.recv_from::<Bomb>(&world, "bomb", 0)).await?.bytes, [7; 1 << 20]);
            }
            let one = f.value("one", vec![1_u32; 10_000]);
            Ok(f.get(&f.all_reduce(&world, "sum", &one, Sum)).await?.to_vec())
        }));
        assert_eq!(sum.unwrap(), [2; 10_000]);
    });
}
