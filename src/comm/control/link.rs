//! One control connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::message::Message;

/// The most bytes that wait for a rank that does not read them. Then it hangs.
const UNSENT_MAX: usize = 1 << 20;

pub(in crate::comm) struct Link {
    pub(super) rank: u32,
    pub(super) stream: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    pub(super) heard: Instant,
    pub(super) has_ended: bool,
    has_closed: bool,
}

/// The other side has ended the connection.
pub(super) struct Ended;

impl Link {
    /// Returns a link to a rank, over a stream that does not block.
    pub(super) fn new(rank: u32, stream: TcpStream) -> Self {
        Self {
            rank,
            stream,
            received: Vec::new(),
            unsent: Vec::new(),
            heard: Instant::now(),
            has_ended: false,
            has_closed: false,
        }
    }

    /// Returns the time for which nothing was heard.
    pub(super) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Sends a message, as far as there is room; the rest follows.
    pub(super) fn send(&mut self, message: &Message) {
        // What waits to be sent is as good as a beat, once it is there.
        let is_needed = self.unsent.is_empty() || !matches!(message, Message::Beat);
        if is_needed && self.unsent.len() < UNSENT_MAX {
            message.write(&mut self.unsent);
        }
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A read of the same stream finds out whether it has ended.
                Err(_) => return,
            }
        }
    }

    /// Ends the connection, which the other side has ended.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Closes this side, once all is sent.
    pub(super) fn close(&mut self) {
        self.flush();
        if self.unsent.is_empty() && !self.has_closed {
            self.has_closed = true;
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Returns the messages that have come.
    pub(super) fn receive(&mut self) -> Result<Vec<Message>, Ended> {
        let mut buffer = [0; 4096];
        let has_ended = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(bytes) => {
                    self.received.extend_from_slice(&buffer[..bytes]);
                    self.heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        let mut messages = Vec::new();
        while let Some(message) = Message::read(&mut self.received).map_err(|()| Ended)? {
            messages.push(message);
        }
        // What a rank has said before its end is read first.
        if has_ended && messages.is_empty() { Err(Ended) } else { Ok(messages) }
    }
}
