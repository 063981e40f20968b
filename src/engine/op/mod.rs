//! What users say: operations, what they read and write, variables, streams.

mod arity;
mod bulk;
mod description;
mod kernel;
mod stream;
mod task;
mod uses;
mod var;

pub use bulk::Bulk;
pub use description::Op;
pub use stream::OpStream;
pub(crate) use uses::Shared;
pub use uses::{Fetch, OpFn, OpFutureFn, OpKernelFn, Put, Reads, TakeVar, Use, Writes};
pub use var::{Var, VarRead, VarWait};
