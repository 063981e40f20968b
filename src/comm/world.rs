//! A world of ranks, as one rank has it.

use std::fmt;
use std::sync::Arc;

use super::engine::Engine;
use super::local::Hall;
use super::op::Place;
use super::steps::Steps;
use super::turns::{Turn, Turns};
use crate::error::{Error, Kind, Result, WorldFault};
use crate::ranks::check_count;
use crate::sync::{AtomicU64, Ordering};

/// A world of ranks, as one of its ranks has it: programs that run at the same time, and exchange values.
///
/// Every rank compiles the same graph for its world ([`Graph::compile_for`](crate::Graph::compile_for)), and
/// runs the plan. A clone is a further handle of the same rank. A rank leaves the world when its last handle
/// is dropped; plans that were compiled for the world, and flows that use it, have handles.
///
/// # Order
/// Ranks start the same work in the same order: runs of plans for the world, by their first poll, and
/// operations of flows, by the calls that push them. Within a run, the plan has one order of collectives for
/// all ranks. A run begins to communicate when earlier work has started all of its communication. Work that
/// is to overlap freely gets a world of its own.
///
/// # Failure
/// A rank that leaves while others wait for it, or that abandons a run which communicates (because a node of
/// it failed, or it was dropped), breaks the world. Then every pending operation on every rank ends with an
/// error for which [`Error::is_world_broken`] is true, and which names the rank and the node that waited. The
/// world stays broken; [`World::duplicate`] makes a new one.
///
/// # Examples
/// Two ranks, as two futures of one thread:
/// ```
/// use anabranch::comm::World;
/// use anabranch::scope::Sum;
/// use anabranch::{Executor, Graph, Result, inputs};
///
/// async fn rank(world: World) -> Result<u64> {
///     let mut g = Graph::new();
///     let mine = g.input::<u64>("mine");
///     let sum = g.all_reduce("sum", &mine, Sum);
///     g.output("sum", &sum);
///     let plan = g.compile_for(&world)?;
///     let mine = 10 + u64::from(world.rank());
///     let mut outputs = Executor::inline().run(&plan, inputs! { "mine" => mine }).await?;
///     Ok(*outputs.take("sum")?)
/// }
///
/// let ranks = World::local(2)?.into_iter().map(rank);
/// let sums = futures::executor::block_on(futures::future::try_join_all(ranks))?;
/// assert_eq!(sums, [21, 21]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct World(pub(super) Arc<Member>);

/// One rank of a world.
pub(crate) struct Member {
    pub(super) engine: Box<dyn Engine>,
    /// The order of runs, and of operations of flows.
    entries: Arc<Turns>,
    next_entry: AtomicU64,
    pub(super) steps: Steps,
    /// What exchanges device memory, once it is started.
    #[cfg(feature = "nccl")]
    pub(super) nccl: crate::sync::OnceLock<super::nccl::Nccl>,
}

impl World {
    /// Returns a world of so many ranks in this process: one handle for each rank, in order. They may be used
    /// by any threads and tasks. Ranks wait for each other: start the work of all before you wait for that of
    /// one, on a thread for each, or with `try_join_all`.
    ///
    /// # Errors
    /// If `ranks` is 0, or more than 65,536.
    pub fn local(ranks: u32) -> Result<Vec<Self>> {
        check_count(ranks)?;
        Ok(Hall::open(ranks).into_iter().map(|engine| Self::of(Box::new(engine))).collect())
    }

    /// Returns a further world of the same ranks, with an order of its own. All ranks call this equally
    /// often: their n-th calls belong together. A broken world has further ones, too: so a program goes on.
    /// NCCL is started anew.
    ///
    /// Over MPI, it waits until all ranks have called it, as `World::mpi` does, for at most the deadline of
    /// this world. A local world returns at once. MPI has room for some hundred broken worlds: their
    /// communicators are not freed.
    ///
    /// # Errors
    /// Over MPI: a rank has died or ended, or not all ranks call this within the deadline.
    ///
    /// # Examples
    /// ```
    /// use anabranch::comm::World;
    ///
    /// let worlds = World::local(2)?;
    /// let further = worlds.iter().map(World::duplicate).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(further[1].rank(), 1);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn duplicate(&self) -> Result<Self> {
        self.0.engine.duplicate().map(Self::of)
    }

    pub(super) fn of(engine: Box<dyn Engine>) -> Self {
        Self(Arc::new(Member {
            engine,
            entries: Arc::default(),
            next_entry: AtomicU64::new(0),
            steps: Steps::default(),
            #[cfg(feature = "nccl")]
            nccl: crate::sync::OnceLock::new(),
        }))
    }

    /// Returns the number of this rank, from 0 on.
    pub fn rank(&self) -> u32 {
        self.place().rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.place().size
    }

    /// Returns the error that broke the world, if it is broken.
    pub fn error(&self) -> Option<Error> {
        Some(Kind::World(self.0.engine.health().fault()?).into())
    }

    pub(super) fn place(&self) -> Place {
        self.0.engine.place()
    }

    /// Reserves the next place in the order of this rank's work.
    pub(super) fn reserve(&self) -> Entry {
        // ORDERING: Relaxed: the number is all that is shared. The caller's own order decides which work
        // comes first.
        let number = self.0.next_entry.fetch_add(1, Ordering::Relaxed);
        Entry { turn: Turn::new(&self.0.entries, number), member: self.0.clone() }
    }
}

/// A place in the order of a rank's work. Its drop lets the next work communicate.
pub(crate) struct Entry {
    pub(super) turn: Turn,
    pub(super) member: Arc<Member>,
}

impl Entry {
    /// Breaks the world: this rank will not do what other ranks may wait for.
    pub(super) fn abandon(&self, why: String) {
        self.member.abandon(why);
    }
}

impl Member {
    /// Breaks the world: this rank will not do what other ranks may wait for.
    pub(super) fn abandon(&self, why: String) {
        let Place { rank, size } = self.engine.place();
        if size > 1 {
            self.engine.break_by(WorldFault::Abandoned { rank, why });
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.engine.leave();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Place { rank, size }, engine) = (self.place(), self.0.engine.name());
        f.debug_struct("World").field("rank", &rank).field("size", &size).field("engine", &engine).finish_non_exhaustive()
    }
}
