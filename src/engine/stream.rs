//! Streams of an engine: what is put on one runs in order, on hosts and devices alike.
//!
//! Such a stream is a variable that each of its operations has alone, and leaves as it is; and on a device a
//! lane, so that no kernel of it waits for another.

use std::fmt;

use super::api::Engine;
use super::lanes::Target;
use super::op::{Job, Op};
use super::place::{Asked, How};
use super::var::Var;
use crate::error::{Kind, Result};

/// A stream of an engine, for operations that are to run one after the other whatever they use; made by
/// [`Engine::stream`].
///
/// Cheap to clone; clones are the same stream. On a device with queues it is one of its streams, which other
/// work may share.
#[derive(Clone)]
pub struct OpStream {
    turn: Var<()>,
    target: Target,
}

impl Engine {
    /// Returns a stream, of the first device if the executor has several.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let log = engine.stream();
    /// for line in ["one", "two", "three"] {
    ///     // They use no common variable, and are printed in this order.
    ///     drop(engine.push(Op::task("print", (), (), move || println!("{line}")).on(&log)).await?);
    /// }
    /// engine.idle().await?;
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn stream(&self) -> OpStream {
        self.stream_of(0).expect("there is a first device, or none")
    }

    /// Returns a stream of a device, counted from 0.
    ///
    /// # Errors
    /// If the executor has devices with queues, and not this one. On hosts all are the same.
    pub fn stream_of(&self, device: u32) -> Result<OpStream> {
        let turn = self.var("a stream", ());
        let Some(lanes) = self.lanes() else { return Ok(OpStream { turn, target: Target { device, lane: None } }) };
        if device as usize >= lanes.device_count() {
            return Err(Kind::NoSuchDevice { device, count: lanes.device_count() }.into());
        }
        let lane = Some(lanes.pin(device));
        Ok(OpStream { turn, target: Target { device, lane } })
    }
}

impl OpStream {
    /// The device that it is of.
    pub(crate) fn device(&self) -> u32 {
        self.target.device
    }
}

impl Job {
    /// Puts it on a stream, which is to be there until it is pushed.
    pub(super) fn put_on(&mut self, stream: &OpStream) {
        let asked = Asked::new(&stream.turn.block().place, How::ALONE);
        if self.asked.iter().all(|earlier| earlier.address() != asked.address()) {
            self.ask(asked);
        }
        self.set_target(stream.target);
    }
}

impl<'v> Op<'v> {
    /// Puts it on a stream: it runs when all that was put there before has, whether they have variables in
    /// common or not. Of several streams the last counts as its device's, and it waits for its turn on each.
    pub fn on(mut self, stream: &'v OpStream) -> Self {
        self.job_mut().put_on(stream);
        self
    }

    /// Sets the device that a kernel goes to, counted from 0, if the executor has several. The default is the
    /// first. Buffers of another are to be fetched: see [`DeviceStream::fetch`](crate::DeviceStream::fetch).
    pub fn device(mut self, device: u32) -> Self {
        self.job_mut().set_target(Target { device, lane: None });
        self
    }
}

impl fmt::Debug for OpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpStream").field("device", &self.target.device).field("lane", &self.target.lane).finish()
    }
}
