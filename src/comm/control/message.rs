//! What ranks tell each other over the control connection.

use serde::{Deserialize, Serialize};

use crate::error::WorldFault;

/// A number that stands for all worlds.
pub(super) const ALL: u32 = u32::MAX;
/// A number that stands for no world.
pub(super) const NONE: u32 = u32::MAX - 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The first of each side: the password of this start of the program, and the sender.
    Hello { password: u64, rank: u32 },
    /// The sender is alive.
    Beat,
    /// A world is broken.
    Broken { world: u32, fault: WorldFault },
    /// A rank has come to its end. If all have, they end together. Whether it has operations in flight.
    Finished { rank: u32, is_idle: bool },
    /// All ranks have come to their end. Whether none has operations in flight.
    AllFinished { is_idle: bool },
    /// A rank has left a world, after it had started so many collectives.
    Left { world: u32, rank: u32, collectives: u64 },
    /// A rank has left a world, and none of its operations is in flight. The numbers of the messages that it
    /// has sent and received, if the world is whole.
    AtRest { world: u32, messages: Option<(u64, u64)> },
    /// All ranks have left a world, and all messages were received: its communicator is to be freed.
    Free { world: u32 },
}

/// The largest message that is read, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The longest text of a fault, in bytes.
const TEXT_MAX: usize = 1 << 14;

/// Returns a fault that fits into a message.
pub(super) fn shortened(mut fault: WorldFault) -> WorldFault {
    match &mut fault {
        WorldFault::Abandoned { why: text, .. } | WorldFault::Transport { what: text } => shorten(text),
        WorldFault::Disagree { place, first, second } => [place, &mut first.1, &mut second.1].into_iter().for_each(shorten),
        WorldFault::Left { .. } | WorldFault::Died { .. } | WorldFault::Silent { .. } => {}
    }
    fault
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" ... (shortened)");
    }
}

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
