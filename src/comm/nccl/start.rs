//! The start of an operation on device memory, when its turn has come.

use std::sync::Arc;

use crate::comm::combine;
use crate::comm::engine::Issuing;
use crate::comm::op::{Op, OpFault, OpFuture};
use crate::comm::world::Member;
use crate::error::BoxError;
use crate::graph::Exchange;
use crate::name::Name;

use super::on_device::Wanted;

/// Starts an operation on device memory. The ranks first compare their lengths: NCCL writes past the end of a
/// buffer, or waits for ever, if they differ.
pub(in crate::comm) fn start(member: Arc<Member>, op: Op, issuing: Arc<Issuing>) -> OpFuture {
    Box::pin(async move {
        let (spec, name) = (op.spec.clone(), op.name.clone());
        let on_device = spec.on_device.as_ref().expect("only operations on device memory come here");
        let none = "its world moves no device memory yet: await `World::use_nccl` before the run";
        let nccl = member.nccl.get().ok_or_else(|| BoxError::from(none))?;
        let (_, length) = on_device.given(op.given.value())?;
        let lengths = lengths_of_all(&member, &name, length).await?;
        // All ranks find mistakes of the lengths.
        let wanted = Wanted::new(&op, on_device, member.engine.place(), &lengths).inspect_err(|_| issuing.complete())?;
        let done = nccl.start(op, wanted);
        // The next operation is behind this one in the queue of the thread.
        issuing.complete();
        done.get().await.inspect_err(|fault| {
            if let OpFault::Value(error) = fault {
                // The other ranks have begun.
                member.abandon(format!("'{name}': {error}"));
            }
        })
    })
}

/// Returns the lengths that the ranks give, in the order of the ranks.
async fn lengths_of_all(member: &Arc<Member>, name: &Name, length: usize) -> Result<Vec<u64>, OpFault> {
    gather(member, name.clone(), vec![length as u64]).await.map(|lengths| lengths.concat())
}

/// Returns the values of all ranks, by the engine of the world.
pub(super) async fn gather<T: bytemuck::Pod + Send + Sync>(
    member: &Arc<Member>,
    name: Name,
    given: Vec<T>,
) -> Result<Vec<Vec<T>>, OpFault> {
    let spec = combine::spec::<Vec<T>>(Exchange::AllGather, |_, all| -> Result<_, BoxError> {
        let lists: Vec<Vec<T>> = all.iter().map(|list| combine::value::<Vec<T>>(list).clone()).collect();
        Ok(Box::new(lists))
    });
    let op = Op::new(name, Arc::new(spec), Arc::new(given), None);
    let made = member.perform(op, Box::new(())).await?;
    Ok(*made.downcast().expect("that is what it makes"))
}
