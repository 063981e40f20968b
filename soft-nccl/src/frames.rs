//! What a rank and the root of its communicator say to each other.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A collective, with all that must be the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Collective {
    AllReduce { count: usize, of: i32, by: i32 },
    ReduceScatter { count: usize, of: i32, by: i32 },
    AllGather { bytes: usize },
    Broadcast { bytes: usize, root: i32 },
}

/// An operation of one rank.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Collective(Collective),
    Exchange { send: Option<usize>, receive: Option<usize> },
}

/// What a rank says.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// The first of all.
    Hello { password: u64, rank: usize, size: usize },
    /// An operation, and the bytes that the rank gives.
    Work(Work, Vec<u8>),
    /// The last of a rank that ends in order.
    Leave,
}

/// What the root says.
#[derive(Serialize, Deserialize)]
pub(crate) enum Reply {
    /// All ranks have come.
    Joined,
    /// An operation has ended, and the rank gets these bytes.
    Made(Vec<u8>),
}

/// Writes the length of what is said, and then its bytes.
pub(crate) fn write(mut to: impl Write, said: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_stdvec(said).map_err(io::Error::other)?;
    to.write_all(&[&(bytes.len() as u64).to_le_bytes(), &bytes[..]].concat())
}

pub(crate) fn read<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut bytes = Vec::new();
    let length = u64::from_le_bytes(length);
    if from.take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}
