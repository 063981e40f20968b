//! The nodes of a graph that communicate: jobs, whose operation the context of a run carries out.

use std::sync::Arc;

use bytemuck::Pod;

use super::combine;
use super::elements::Elements;
use super::op::Spec;
use super::operand::Operand;
use super::transfers::CommunicationBody;
use super::wire::Wire;
use crate::graph::{Data, Graph, NewJob, Peer, Value};
use crate::name::Name;
use crate::scope::Operator;

impl Graph {
    /// Adds an all-reduce: all ranks get the combination of the values of all ranks, element by element.
    ///
    /// `x` is a number or a `Vec`, of the same length on all ranks, read (`&x`) or taken
    /// ([`take`](crate::take)`(&x)`; see [`Operand`]). The operator is one of
    /// [`scope`](crate::scope): `Sum`, `Product`, `Min`, `Max`, or one of your own. It combines in the order
    /// of the ranks in a local world; MPI may use another order, so a sum of floats may differ in its last
    /// bits from world to world, and never from rank to rank.
    ///
    /// As every node of communication it is a future, blocks no thread, and needs
    /// [`Graph::compile_for`].
    ///
    /// # Errors
    /// Of the run: the world is broken ([`Error::is_world_broken`](crate::Error::is_world_broken)); the
    /// lengths differ.
    ///
    /// # Cancellation
    /// If the run is dropped or fails while other ranks wait for it, the world breaks.
    pub fn all_reduce<V, O>(&mut self, name: impl Into<Name>, x: impl Operand<Value<V>>, operator: O) -> Value<V>
    where
        V: Elements,
        O: Operator<V::Item>,
    {
        self.communicate(name.into(), x, combine::all_reduce::<V, O>(operator))
    }

    /// Adds an all-gather: all ranks get the elements of the values of all ranks, in the order of the ranks.
    /// The lengths may differ from rank to rank. Errors and cancellation are those of [`Graph::all_reduce`].
    pub fn all_gather<V: Elements>(&mut self, name: impl Into<Name>, x: impl Operand<Value<V>>) -> Value<Vec<V::Item>> {
        self.communicate(name.into(), x, combine::all_gather::<V>())
    }

    /// Adds a reduce-scatter: the values of all ranks are combined element by element, and rank r gets part
    /// number r of as many equal parts as there are ranks.
    ///
    /// # Errors
    /// Of the run, in addition to those of [`Graph::all_reduce`]: the length is no multiple of the number of
    /// ranks.
    ///
    /// # Cancellation
    /// As [`Graph::all_reduce`].
    pub fn reduce_scatter<T, O>(&mut self, name: impl Into<Name>, x: impl Operand<Value<Vec<T>>>, operator: O) -> Value<Vec<T>>
    where
        T: Pod + Send + Sync,
        O: Operator<T>,
    {
        self.communicate(name.into(), x, combine::reduce_scatter::<T, O>(operator))
    }

    /// Adds a broadcast: all ranks get the value of rank `root`. The values of the others are not used.
    ///
    /// # Errors
    /// Of [`Graph::compile_for`]: there is no such rank. Of the run: as [`Graph::all_reduce`].
    ///
    /// # Cancellation
    /// As [`Graph::all_reduce`].
    pub fn broadcast<V: Wire>(&mut self, name: impl Into<Name>, x: impl Operand<Value<V>>, root: u32) -> Value<V> {
        self.communicate(name.into(), x, combine::broadcast::<V>(root))
    }

    /// Adds an all-to-all: each rank divides its value into as many equal parts as there are ranks, and gives
    /// part number r to rank r. It gets the parts that are for it, in the order of the ranks.
    ///
    /// # Errors
    /// As [`Graph::reduce_scatter`].
    ///
    /// # Cancellation
    /// As [`Graph::all_reduce`].
    pub fn all_to_all<T>(&mut self, name: impl Into<Name>, x: impl Operand<Value<Vec<T>>>) -> Value<Vec<T>>
    where
        T: Pod + Send + Sync,
    {
        self.communicate(name.into(), x, combine::all_to_all::<T>())
    }

    /// Adds a barrier: it ends when all ranks have come to it. `after` are the nodes before it, a value.
    /// Errors and cancellation are those of [`Graph::all_reduce`].
    pub fn barrier<T: Data>(&mut self, name: impl Into<Name>, after: &Value<T>) -> Value<()> {
        let barrier = communicate_of(self, name.into(), combine::barrier(), |_| {});
        self.node(&barrier).after(after);
        barrier
    }

    /// Adds a send: each rank gives its value to its peer, a rank or a [`Peer`], in which case a rank may
    /// have none. It ends when it is issued. A [`Graph::recv_from`] there gets it: the n-th send
    /// from one rank to another belongs to the n-th receive, in the order in which this graph's nodes were
    /// added. Loops and branches have pairs of their own.
    ///
    /// # Errors
    /// Of [`Graph::compile_for`]: a send without a receive, on any rank; there is no such rank. Of the run:
    /// the world is broken; the value cannot be encoded.
    ///
    /// # Cancellation
    /// As [`Graph::all_reduce`]. A send that was issued is not taken back.
    pub fn send_to<V: Wire>(&mut self, name: impl Into<Name>, x: impl Operand<Value<V>>, to: impl Into<Peer>) -> Value<()> {
        self.communicate(name.into(), x, combine::send::<V>(to.into()))
    }

    /// Adds a receive: each rank gets the value that its peer sends. It is None on ranks without a peer.
    ///
    /// # Errors
    /// Of [`Graph::compile_for`]: a receive without a send, on any rank; a send of another type; there is no
    /// such rank. Of the run: the world is broken; the bytes are no value of the type.
    ///
    /// # Cancellation
    /// As [`Graph::all_reduce`].
    pub fn recv_from<V: Wire>(&mut self, name: impl Into<Name>, from: impl Into<Peer>) -> Value<Option<V>> {
        communicate_of(self, name.into(), combine::receive::<V>(from.into()), |_| {})
    }

    fn communicate<V: Data, R: Data>(&mut self, name: Name, x: impl Operand<Value<V>>, spec: Spec) -> Value<R> {
        let (x, is_taken) = x.handle();
        communicate_of(self, name, spec, |job| if is_taken { job.take(&x) } else { job.read(&x) })
    }
}

/// Adds a node that communicates. `read` declares what it reads.
pub(super) fn communicate_of<R: Data>(graph: &mut Graph, name: Name, spec: Spec, read: impl FnOnce(&mut NewJob<'_>)) -> Value<R> {
    let mut job = graph.job(name);
    read(&mut job);
    job.communicate(spec.communication.clone());
    let name = job.full_name();
    let value = job.make();
    job.end(Box::new(CommunicationBody { name, spec: Arc::new(spec), makes: true }));
    value
}
