//! What breaks a world of ranks.

/// The reason why a world is broken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[cfg_attr(feature = "mpi", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
pub(crate) enum WorldFault {
    #[error(
        "rank {rank} has left the world: it has ended, or has dropped its last handle: see whether it has an error of its own"
    )]
    Left { rank: u32 },
    /// The connection to it has ended.
    #[error("rank {rank} has died: its process has ended")]
    Died { rank: u32 },
    #[error("rank {rank} has not answered for {ms} ms: its process hangs, is stopped, or cannot be reached")]
    Silent { rank: u32, ms: u64 },
    #[error("rank {rank} has abandoned the run: {why}")]
    Abandoned { rank: u32, why: String },
    #[error("the transport has failed: {what}")]
    Transport { what: String },
    #[error(
        "the ranks disagree about {place}: on rank {} it is {}, on rank {} {}. Every rank must build the same graph, and start the same work in the same order",
        first.0, first.1, second.0, second.1
    )]
    Disagree { place: String, first: (u32, String), second: (u32, String) },
}

impl WorldFault {
    /// Returns the rank that broke the world, if one rank did.
    pub(super) fn rank(&self) -> Option<u32> {
        match self {
            Self::Left { rank } | Self::Died { rank } | Self::Silent { rank, .. } | Self::Abandoned { rank, .. } => Some(*rank),
            Self::Disagree { .. } | Self::Transport { .. } => None,
        }
    }
}
