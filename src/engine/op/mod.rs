//! What users say: operations, what they read and write, variables, streams.

mod bulk;
mod description;
mod kernel;
mod parts;
mod reads;
mod stream;
mod var;
mod writes;

pub use bulk::Bulk;
pub(crate) use description::Begun;
pub use description::Op;
pub use reads::TakeVar;
pub(crate) use reads::{Bound, ShareVar};
pub use stream::Stream;
pub use var::{Var, VarRead, VarWait};
pub(crate) use writes::PutShared;
pub use writes::{Put, Writes};
