//! What ranks tell each other over the control connection.

use serde::{Deserialize, Serialize};

use crate::error::WorldFault;

/// A number that stands for all worlds.
pub(super) const ALL: u32 = u32::MAX;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The first of each side: the password of this start of the program, and the sender.
    Hello { password: u64, rank: u32 },
    /// The sender is alive.
    Beat,
    /// A world is broken.
    Broken { world: u32, fault: WorldFault },
    /// A rank has come to its end. If all have, and no world has broken, they end together.
    Finished { rank: u32 },
    /// All ranks have come to their end.
    AllFinished,
    /// A rank has left a world.
    Left { world: u32, rank: u32 },
}

/// The largest message that is read, in bytes.
const BYTES_MAX: usize = 1 << 20;

impl Message {
    /// Appends the message to bytes that are to be sent: its length, and its encoding.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let bytes = postcard::to_stdvec(self).expect("a message has an encoding");
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Takes the first message off bytes that were received. Returns None if it is not complete.
    ///
    /// # Errors
    /// If the bytes are no message.
    pub(super) fn read(from: &mut Vec<u8>) -> Result<Option<Self>, ()> {
        let Some((length, rest)) = from.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > BYTES_MAX {
            return Err(());
        }
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(bytes).map_err(drop)?;
        from.drain(..4 + length);
        Ok(Some(message))
    }
}
