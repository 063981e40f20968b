//! Streams of an engine: the operations of a stream run in order, on hosts and on devices.
//!
//! Such a stream is a variable to which each of its operations has exclusive access, and which none changes.
//! On a device it is also a lane, so that no kernel of it waits for another.

use std::fmt;

use super::description::Op;
use super::var::Var;
use crate::engine::order::{Mode, Target, Unpushed};

/// A stream of an engine, for operations that are to run one after the other whatever they use; made by
/// [`Engine::stream`](crate::Engine::stream).
///
/// Cheap to clone; clones are the same stream. On a device with queues it is one of its streams, which other
/// work may share.
///
/// # Examples
/// Operations that append to a file, in their order:
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use anabranch::engine::Stream;
/// use anabranch::{Engine, Executor, Op, Result};
///
/// type File = Arc<Mutex<String>>;
///
/// async fn append(engine: &Engine, on: &Stream, file: &File, line: &'static str) -> Result<()> {
///     let file = file.clone();
///     engine.push(Op::task("append", (), (), move || file.lock().unwrap().push_str(line)).on(on)).await?;
///     Ok(())
/// }
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (on, file) = (engine.stream(), File::default());
/// append(&engine, &on, &file, "one, ").await?;
/// append(&engine, &on, &file, "two").await?;
/// engine.idle().await?;
/// assert_eq!(*file.lock().unwrap(), "one, two");
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Stream {
    turn: Var<()>,
    target: Target,
}

impl Stream {
    pub(in crate::engine) fn new(turn: Var<()>, target: Target) -> Self {
        Self { turn, target }
    }

    /// Puts an operation on this stream, which outlives its push.
    pub(in crate::engine) fn put(&self, operation: &mut Unpushed<'_>) {
        let Some(on) = operation.get_mut() else { return };
        on.set_target(self.target);
        let (access, _) = self.turn.access(Mode::EXCLUSIVE);
        if on.accesses().iter().all(|earlier| earlier.address() != access.address()) {
            operation.add_access(access);
        }
    }

    pub(crate) fn device(&self) -> u32 {
        self.target.device
    }
}

impl<'v> Op<'v> {
    /// Puts it on a stream: it runs after all operations that were put there before. With several streams it
    /// waits for each; the last one sets its device.
    pub fn on(mut self, stream: &'v Stream) -> Self {
        stream.put(self.unpushed());
        self
    }

    /// Sets the device that a kernel goes to, counted from 0, if the executor has several. The default is the
    /// first. Buffers of another are to be fetched: see [`DeviceStream::fetch`](crate::DeviceStream::fetch).
    pub fn device(mut self, device: u32) -> Self {
        self.set(|operation| operation.set_target(Target { device, lane: None }));
        self
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.target.device).field("lane", &self.target.lane).finish()
    }
}
