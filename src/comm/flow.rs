//! The operations of a flow that communicate. Each has a place of its own in the order of the rank's work:
//! that of the call that pushed it.

use std::future::Future;
use std::sync::Arc;

use bytemuck::Pod;

use super::combine;
use super::elements::Elements;
use super::op::{Op, Peering, Spec};
use super::operand::Operand;
use super::perform::{Unstarted, perform_alone};
use super::wire::Wire;
use super::world::World;
use crate::engine::ShareVar;
use crate::error::BoxError;
use crate::graph::{Data, Exchange, Made, Peer, Shared};
use crate::name::Name;
use crate::ranks::there_are;
use crate::scope::Operator;
use crate::{Flow, Var};

/// The tag of all messages of flows. They keep their order.
const FLOWS: u32 = u32::MAX;

impl Flow {
    /// Pushes an all-reduce: all ranks get the combination of the values of all ranks, element by element,
    /// as [`Graph::all_reduce`](crate::Graph::all_reduce). It reads `x` (`&x`) or takes it
    /// ([`take`](crate::take)`(&x)`; see [`Operand`]): then other owners may keep the value.
    ///
    /// All ranks must push the same communication in the same order. It starts when `x` has a value and all
    /// communication that was pushed before for this world has started.
    ///
    /// # Errors
    /// The variable is poisoned if the world is broken, if the lengths differ, or if ranks push different
    /// operations, which breaks the world.
    ///
    /// # Cancellation
    /// If it is dropped before it is started, with its flow or because `x` has failed, the world breaks. Over
    /// MPI, it may be started only when all ranks have come to it.
    ///
    /// # Examples
    /// ```
    /// use anabranch::comm::World;
    /// use anabranch::scope::Max;
    /// use anabranch::{Executor, Flow, Result};
    ///
    /// async fn rank(world: World) -> Result<u32> {
    ///     let exec = Executor::inline();
    ///     let largest = exec.flow(async |f: &Flow| {
    ///         let x = f.value("x", 7 * world.rank());
    ///         let largest = f.all_reduce(&world, "largest", &x, Max);
    ///         Ok(*f.get(&largest).await?)
    ///     });
    ///     largest.await
    /// }
    ///
    /// let ranks = World::local(3)?.into_iter().map(rank);
    /// assert_eq!(futures::executor::block_on(futures::future::try_join_all(ranks))?, [14; 3]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn all_reduce<'v, V, O>(&self, world: &World, name: impl Into<Name>, x: impl Operand<&'v Var<V>>, operator: O) -> Var<V>
    where
        V: Elements,
        O: Operator<V::Item>,
    {
        self.communicate(world, name.into(), x, combine::all_reduce::<V, O>(operator), None)
    }

    /// Pushes an all-gather, as [`Graph::all_gather`](crate::Graph::all_gather); see [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn all_gather<'v, V: Elements>(
        &self,
        world: &World,
        name: impl Into<Name>,
        x: impl Operand<&'v Var<V>>,
    ) -> Var<Vec<V::Item>> {
        self.communicate(world, name.into(), x, combine::all_gather::<V>(), None)
    }

    /// Pushes a reduce-scatter, as [`Graph::reduce_scatter`](crate::Graph::reduce_scatter); see
    /// [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn reduce_scatter<'v, T, O>(
        &self,
        world: &World,
        name: impl Into<Name>,
        x: impl Operand<&'v Var<Vec<T>>>,
        operator: O,
    ) -> Var<Vec<T>>
    where
        T: Pod + Send + Sync,
        O: Operator<T>,
    {
        self.communicate(world, name.into(), x, combine::reduce_scatter::<T, O>(operator), None)
    }

    /// Pushes a broadcast, as [`Graph::broadcast`](crate::Graph::broadcast); see [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn broadcast<'v, V: Wire>(&self, world: &World, name: impl Into<Name>, x: impl Operand<&'v Var<V>>, root: u32) -> Var<V> {
        self.communicate(world, name.into(), x, combine::broadcast::<V>(root), None)
    }

    /// Pushes an all-to-all, as [`Graph::all_to_all`](crate::Graph::all_to_all); see [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn all_to_all<'v, T: Pod + Send + Sync>(
        &self,
        world: &World,
        name: impl Into<Name>,
        x: impl Operand<&'v Var<Vec<T>>>,
    ) -> Var<Vec<T>> {
        self.communicate(world, name.into(), x, combine::all_to_all::<T>(), None)
    }

    /// Pushes a barrier, as [`Graph::barrier`](crate::Graph::barrier); see [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn barrier<T: Data>(&self, world: &World, name: impl Into<Name>, after: &Var<T>) -> Var<()> {
        self.communicate(world, name.into(), after, combine::barrier(), None)
    }

    /// Pushes a send to rank `to`: a [`Flow::recv_from`] there gets the value. Messages from one rank to
    /// another keep their order. It ends when it is issued; over MPI, that of a large value waits for the
    /// receive, for up to 400 µs. See [`Flow::all_reduce`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn send_to<'v, V: Wire>(&self, world: &World, name: impl Into<Name>, x: impl Operand<&'v Var<V>>, to: u32) -> Var<()> {
        self.communicate(world, name.into(), x, combine::send::<V>(Peer::rank(to)), Some(to))
    }

    /// Pushes a receive of the next value that rank `from` sends to this rank; see [`Flow::send_to`]. If it
    /// is dropped after its start, its value is discarded: later receives get later values.
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn recv_from<V: Wire>(&self, world: &World, name: impl Into<Name>, from: u32) -> Var<V> {
        let (name, spec) = (name.into(), combine::receive_one::<V>(Peer::rank(from)));
        match self.reserve(world, &name, spec, Some(from)) {
            Ok(reserved) => self.future(name.clone(), (), move || reserved.perform(name, combine::nothing())),
            Err(refused) => refused,
        }
    }

    fn communicate<'v, V: Data, R: Data>(
        &self,
        world: &World,
        name: Name,
        x: impl Operand<&'v Var<V>>,
        spec: Spec,
        peer: Option<u32>,
    ) -> Var<R> {
        match self.reserve(world, &name, spec, peer) {
            Ok(reserved) => {
                let (var, is_taken) = x.handle();
                self.future(name.clone(), ShareVar { var, is_taken }, move |x: Arc<V>| reserved.perform(name, x))
            }
            Err(refused) => refused,
        }
    }

    /// Reserves a place for an operation, in the order of the rank's work. If it names a rank that the world
    /// does not have, returns a variable that has failed.
    fn reserve<R: Data>(&self, world: &World, name: &Name, spec: Spec, peer: Option<u32>) -> Result<Reserved, Var<R>> {
        let root = if let Exchange::Broadcast { root } = spec.communication.exchange { Some(root) } else { None };
        if let Some(rank) = peer.or(root).filter(|rank| *rank >= world.size()) {
            let fault = format!("names rank {rank}, but {}", there_are(world.size()));
            // Its counterparts on other ranks would wait for ever.
            world.reserve().abandon(format!("'{name}' {fault}"));
            return Err(self.try_task(name.clone(), (), move || Err::<R, BoxError>(fault.into())));
        }
        let peer = peer.map(|rank| Peering { rank, tag: FLOWS });
        Ok(Reserved { unstarted: Unstarted::new(world.reserve(), name.clone()), spec: Arc::new(spec), peer })
    }
}

/// An operation with its place.
struct Reserved {
    unstarted: Unstarted,
    spec: Arc<Spec>,
    peer: Option<Peering>,
}

impl Reserved {
    fn perform<R: Data>(self, name: Name, given: Shared) -> impl Future<Output = Result<R, BoxError>> + Send + use<R> {
        let op = Op::new(name, self.spec, given, self.peer);
        async move { perform_alone(self.unstarted, op).await.and_then(value) }
    }
}

fn value<R: Data>(made: Made) -> Result<R, BoxError> {
    Ok(*made.downcast().expect("a spec makes values of its type"))
}
