//! The nodes of a graph that communicate device memory.

use std::any::type_name;

use super::on_device::OnDevice;
use crate::comm::combine;
use crate::comm::native::{Element as NativeElement, native};
use crate::comm::nodes::communicate_of;
use crate::comm::op::Spec;
use crate::device::{Buffer, Element};
use crate::error::Kind;
use crate::graph::{Communication, Data, Exchange, Graph, Peer, Value};
use crate::name::Name;
use crate::scope::Operator;

impl Graph {
    /// Adds an all-reduce of device memory, by NCCL: all ranks get the combination of the buffers of all
    /// ranks, element by element, in a new buffer. The buffers have the same length on all ranks.
    ///
    /// The operator is one that NCCL has: `Sum` or `Product`, or `Min` or `Max` of integers. NCCL reduces no
    /// integers of 16 bits. Sums of floats may differ in their last bits from those of a world without NCCL,
    /// and never from rank to rank.
    ///
    /// The node starts when the work that makes its buffer has ended, and it has its turn among all nodes
    /// that communicate. It needs [`World::use_nccl`](crate::comm::World::use_nccl).
    ///
    /// # Errors
    /// Of [`Graph::compile_for`]: NCCL does not have the operator. Of the run: the world is broken
    /// ([`Error::is_world_broken`](crate::Error::is_world_broken)); the lengths differ; the buffer is in the
    /// memory of a host, or of another GPU than the world's.
    ///
    /// # Cancellation
    /// If the run is dropped or fails while other ranks wait for it, the world breaks. The buffers stay until
    /// the GPU has finished with them.
    pub fn all_reduce_on_device<T, O>(&mut self, name: impl Into<Name>, x: &Value<Buffer<T>>, operator: O) -> Value<Buffer<T>>
    where
        T: Element,
        O: Operator<T>,
    {
        let exchange = Exchange::AllReduce { operator: operator.name() };
        self.reduce_on_device::<T, O>(name.into(), x, exchange)
    }

    /// Adds a reduce-scatter of device memory, as [`Graph::all_reduce_on_device`]: rank r gets part number r
    /// of the combination, of as many equal parts as there are ranks.
    ///
    /// # Errors
    /// Of the run, in addition to those of [`Graph::all_reduce_on_device`]: the length is no multiple of the
    /// number of ranks.
    pub fn reduce_scatter_on_device<T, O>(&mut self, name: impl Into<Name>, x: &Value<Buffer<T>>, operator: O) -> Value<Buffer<T>>
    where
        T: Element,
        O: Operator<T>,
    {
        let exchange = Exchange::ReduceScatter { operator: operator.name() };
        self.reduce_on_device::<T, O>(name.into(), x, exchange)
    }

    /// Adds an all-gather of device memory: all ranks get the elements of the buffers of all ranks, in the
    /// order of the ranks. The buffers have the same length on all ranks. See
    /// [`Graph::all_reduce_on_device`].
    pub fn all_gather_on_device<T: Element>(&mut self, name: impl Into<Name>, x: &Value<Buffer<T>>) -> Value<Buffer<T>> {
        let spec = spec::<T>(Exchange::AllGather, OnDevice::buffer::<T>());
        self.communicate_device_memory(name.into(), x, Ok(spec))
    }

    /// Adds a broadcast of device memory: all ranks get the elements of rank `root`, in a new buffer. The
    /// buffers have the same length on all ranks; the contents of the others are not used. See
    /// [`Graph::all_reduce_on_device`].
    pub fn broadcast_on_device<T: Element>(
        &mut self,
        name: impl Into<Name>,
        x: &Value<Buffer<T>>,
        root: u32,
    ) -> Value<Buffer<T>> {
        let spec = spec::<T>(Exchange::Broadcast { root }, OnDevice::buffer::<T>());
        self.communicate_device_memory(name.into(), x, Ok(spec))
    }

    /// Adds an exchange of device memory between neighbours: each rank sends its buffer to its peer `to`, and
    /// gets the buffer that its peer `from` sends, both at once. It gets None if it has no such peer. The
    /// lengths may differ from rank to rank.
    ///
    /// NCCL matches messages by their order on one stream. So a send and its receive are one node, which has
    /// its place in the order of all ranks, as a collective has. See [`Graph::all_reduce_on_device`].
    ///
    /// # Errors
    /// Of [`Graph::compile_for`]: a rank sends to one that does not receive from it, or the reverse.
    pub fn send_recv_on_device<T: Element>(
        &mut self,
        name: impl Into<Name>,
        x: &Value<Buffer<T>>,
        to: impl Into<Peer>,
        from: impl Into<Peer>,
    ) -> Value<Option<Buffer<T>>> {
        let spec = spec::<T>(Exchange::SendRecv { to: to.into(), from: from.into() }, OnDevice::optional::<T>());
        self.communicate_device_memory(name.into(), x, Ok(spec))
    }

    fn reduce_on_device<T: Element, O: Operator<T>>(
        &mut self,
        name: Name,
        x: &Value<Buffer<T>>,
        exchange: Exchange,
    ) -> Value<Buffer<T>> {
        let reduction = reduction::<T, O>();
        let mut spec = Spec { reduction, ..spec::<T>(exchange, OnDevice::buffer::<T>()) };
        spec.communication.operator = Some(type_name::<O>().into());
        let fault = format!(
            "is an {}, which NCCL does not have: it has `Sum` and `Product`, and `Min` and `Max` of integers, of 8, 32 or 64 bits",
            spec.communication
        );
        self.communicate_device_memory(name, x, if reduction.is_some() { Ok(spec) } else { Err((spec, fault)) })
    }

    fn communicate_device_memory<T: Element, R: Data>(
        &mut self,
        name: Name,
        x: &Value<Buffer<T>>,
        spec: Result<Spec, (Spec, String)>,
    ) -> Value<R> {
        match spec {
            Ok(spec) => communicate_of(self, name, spec, |job| job.read(x)),
            Err((spec, fault)) => {
                let mut job = self.job(name);
                job.read(x);
                job.communicate(spec.communication);
                let (node, value) = (job.full_name(), job.make());
                job.fail(Kind::Body { node, fault }.into());
                value
            }
        }
    }
}

/// Returns the reduction, if NCCL has it.
fn reduction<T: Element, O: Operator<T>>() -> Option<(NativeElement, crate::comm::native::Operation)> {
    native::<T, O>().filter(|(element, _)| !matches!(element, NativeElement::I16 | NativeElement::U16))
}

fn spec<T: Element>(exchange: Exchange, on_device: OnDevice) -> Spec {
    let communication = Communication { exchange, of: type_name::<Buffer<T>>().into(), operator: None };
    // No engine of the host sees its value.
    let host = combine::spec::<()>(Exchange::Barrier, |_, _| Ok(Box::new(())));
    Spec { communication, on_device: Some(on_device), ..host }
}
