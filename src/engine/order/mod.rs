//! The order of operations: queues of variables, slots of pending operations, the list of ready ones, uses by
//! devices. No threads and no executor. All unsafe code of the engine is here. [`tokens`] are the right of a
//! thread to run or end an operation; a [`Grant`] is the right of a body to use the operation's variables.

mod access;
mod batch;
mod body;
mod device_use;
mod device_uses;
mod exclusive;
mod handle_state;
mod inspection;
mod joining;
mod operation;
mod predecessors;
mod queue;
mod reading;
mod ready;
mod scope;
mod seen;
mod self_wait;
mod slots;
mod tokens;
mod var_handle;
mod variable;

pub(crate) use access::{Access, Mode};
pub(crate) use batch::{Batch, FREED_MAX};
pub(crate) use body::{Body, Enqueue, GrantedFuture, Joined, OpFuture, Outcome, PendingFuture, Rest, Work};
#[cfg(test)]
pub(crate) use device_use::Ending;
pub(crate) use device_use::{Completed, DeviceUse, Failure, Recorded, SubmittedOp};
pub(crate) use exclusive::{Exclusive, More};
pub(crate) use handle_state::Key;
#[cfg(test)]
pub(crate) use inspection::Inspection;
pub(crate) use joining::Joining;
pub(crate) use operation::{Accesses, Granted, Operation, PRIORITY_MAX, Role, SCANNED, Target, Unpushed};
pub(crate) use predecessors::Predecessors;
pub(crate) use queue::{OPERATIONS_MAX, REQUESTS_MAX};
#[cfg(test)]
pub(crate) use queue::{Queue, Request, RequestId, Requests};
pub(crate) use reading::Reading;
pub(crate) use ready::Ready;
pub(crate) use scope::Scope;
pub(crate) use seen::{Seen, SeenAccess};
pub(crate) use self_wait::{is_polling, self_wait};
pub(crate) use slots::{CHUNKS, FreeSlots, Slots, Wakes, chunk_and_index};
pub(crate) use tokens::{Entering, Grant, Left, NothingPending, Runnable, Turn};
pub(crate) use var_handle::{Frees, VarHandle};
#[expect(unreachable_pub, reason = "named by hidden items of public traits")]
pub use variable::VarPtr;
pub use variable::Vars;
pub(crate) use variable::{TypedVariable, Variable};
