//! The start of NCCL in a world: the ranks find each other through the world's own engine.

use std::future::Future;
use std::sync::Arc;

use super::library::UniqueId;
use super::start::gather;
use super::thread::{Nccl, Opened, Rank};
use crate::comm::detached::detach;
use crate::comm::done::Done;
use crate::comm::op::OpFault;
use crate::comm::perform::Unstarted;
use crate::comm::steps::break_after_cause;
use crate::comm::world::{Member, World};
use crate::error::{Kind, Result, WorldFault};
use crate::name::Name;

/// The first byte of what a rank tells the others.
const IS_OPEN: u8 = 1;

impl World {
    /// Lets the ranks exchange device memory, by NCCL: the nodes of
    /// [`Graph::all_reduce_on_device`](crate::Graph::all_reduce_on_device) and its like. `ordinal` is the
    /// number of this rank's GPU, on which the plans of this rank run. All ranks call this, each with a GPU
    /// of its own, at the same place of their order of work. It is a future, and blocks no thread.
    ///
    /// NCCL 2.18 or later is loaded when this is called. Values of the host go as before.
    ///
    /// # Errors
    /// On all ranks, if a rank has no NCCL, no such GPU, or has called this before; the error names the rank,
    /// and the world stays whole. If NCCL cannot connect the ranks, the world breaks.
    ///
    /// # Cancellation
    /// If it is dropped before its end, the world breaks, because other ranks wait.
    ///
    /// # Examples
    /// ```no_run
    /// use anabranch::comm::World;
    /// use anabranch::scope::Sum;
    /// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Result, inputs};
    ///
    /// async fn rank(world: World) -> Result<f32> {
    ///     let gpu = world.rank();
    ///     world.use_nccl(gpu).await?;
    ///     let mut g = Graph::new();
    ///     let x = g.input::<Vec<f32>>("x");
    ///     let x = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
    ///     let sum = g.all_reduce_on_device("sum", &x, Sum);
    ///     let sum = g.try_kernel("down", &sum, |s: &mut DeviceStream, x: &anabranch::Buffer<f32>| Ok(s.download(x)?));
    ///     let sum = g.task("first", &sum, |sum: &HostBuffer<f32>| sum[0]);
    ///     g.output("sum", &sum);
    ///     let exec = Executor::builder().workers(1).cuda(&[gpu]).build()?;
    ///     let mut outputs = exec.run(&g.compile_for(&world)?, inputs! { "x" => vec![1.0_f32] }).await?;
    ///     Ok(*outputs.take("sum")?)
    /// }
    /// # let _ = rank;
    /// ```
    pub fn use_nccl(&self, ordinal: u32) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        self.use_nccl_of(move |member| Nccl::open(ordinal, rank_of(member)))
    }

    /// As [`World::use_nccl`], by a thread that `start` starts when it is this rank's turn.
    fn use_nccl_of<S>(&self, start: S) -> impl Future<Output = Result<()>> + Send + 'static + use<S>
    where
        S: FnOnce(&Arc<Member>) -> Result<Started> + Send + 'static,
    {
        let name = Name::from("World::use_nccl");
        let (member, mut unstarted) = (self.0.clone(), Unstarted::new(self.reserve(), name.clone()));
        async move {
            let health = member.engine.health().clone();
            let ended = health.watch(async {
                unstarted.entry().turn.come().await;
                let opened = open(&member, start(&member), &name).await;
                drop(unstarted.start());
                opened
            });
            match ended.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Fault::Nccl(why))) => Err(Kind::Nccl { why }.into()),
                // The first fault is the cause of the others.
                Ok(Err(Fault::World(fault))) | Err(fault) => Err(Kind::World(health.fault().unwrap_or(fault)).into()),
            }
        }
    }
}

/// Returns what the thread needs. It does not keep a world that its rank leaves.
fn rank_of(member: &Arc<Member>) -> Rank {
    let (place, health, member) = (member.engine.place(), member.engine.health().clone(), Arc::downgrade(member));
    let own = health.clone();
    let break_by = Box::new(move |fault: WorldFault| {
        let (member, health) = (member.clone(), own.clone());
        detach(async move {
            break_after_cause(member, fault.clone()).await;
            // If this rank has left the world, only its own thread is left here.
            health.break_by(fault);
        });
    });
    Rank { place, health, break_by }
}

/// A thread that was started, and what it will find.
type Started = (Nccl, Arc<Done<Opened>>);

enum Fault {
    Nccl(String),
    World(WorldFault),
}

impl From<OpFault> for Fault {
    fn from(fault: OpFault) -> Self {
        match fault {
            OpFault::World(fault) => Self::World(fault),
            OpFault::Value(error) => Self::Nccl(error.to_string()),
        }
    }
}

async fn open(member: &Arc<Member>, started: Result<Started>, name: &Name) -> Result<(), Fault> {
    // The other ranks wait for what this one has to say, whatever it is.
    let (nccl, mut opened) = match started {
        Ok((nccl, opened)) => (Some(nccl), opened.get().await),
        Err(error) => (None, Err(format!("{error:#}"))),
    };
    if member.nccl.get().is_some() {
        opened = Err("the world has it already: call `World::use_nccl` once".into());
    }
    let id = agree(member, name, opened).await?;
    let nccl = nccl.expect("all ranks have one: they have agreed");
    if let Err(what) = nccl.connect(id).get().await {
        // The thread has broken the world.
        let fault = WorldFault::Transport { what };
        return Err(Fault::World(fault));
    }
    let _ = member.nccl.set(nccl);
    Ok(())
}

/// Tells the other ranks whether this one has NCCL and a GPU. Returns the id that rank 0 has made.
async fn agree(member: &Arc<Member>, name: &Name, opened: Opened) -> Result<UniqueId, Fault> {
    let told = match &opened {
        Ok(id) => [&[IS_OPEN][..], id.as_ref().map_or(&[], |id| &id.0)].concat(),
        Err(why) => [&[0][..], why.as_bytes()].concat(),
    };
    let all = gather(member, name.clone(), told).await?;
    for (told, rank) in all.iter().zip(0..) {
        if told.first() != Some(&IS_OPEN) {
            let why = String::from_utf8_lossy(told.get(1..).unwrap_or_default());
            return Err(Fault::Nccl(format!("on rank {rank} of {}: {why}", all.len())));
        }
    }
    let id = all.first().and_then(|told| told.get(1..)?.try_into().ok());
    id.map(UniqueId).ok_or_else(|| Fault::Nccl("rank 0 has told no id".into()))
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use std::task::{Context, Waker};

    use futures::future::join;

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_thread_that_one_rank_cannot_start_is_an_error_on_all() {
        // Seen to fail when the error ended the call before the ranks had agreed: rank 0 waited for ever.
        let worlds = World::local(2).expect("there are two ranks");
        let first = worlds[0].use_nccl_of(|_| {
            let opened = Arc::new(Done::default());
            opened.set(Ok(Some(UniqueId([0; 128]))));
            Ok((Nccl::default(), opened))
        });
        let second = worlds[1].use_nccl_of(|_| Err(Error::with_source(Kind::Thread, "there are too many".into())));
        let (mut both, mut cx) = (Box::pin(join(first, second)), Context::from_waker(Waker::noop()));
        let mut polls = (0..10).map(|_| both.as_mut().poll(&mut cx));
        let Some(std::task::Poll::Ready((first, second))) = polls.find(|polled| polled.is_ready()) else {
            panic!("the ranks wait for each other");
        };
        for error in [first, second] {
            let text = format!("{:#}", error.expect_err("rank 1 has no thread"));
            assert!(text.starts_with("NCCL cannot be used: on rank 1 of 2: "), "{text}");
            assert!(text.contains("there are too many"), "{text}");
        }
        assert!(worlds.iter().all(|world| world.error().is_none()));
    }
}
