//! A stream of the host device as kernels see it.

/// A stream of the host device, given to a kernel node.
///
/// Work that is launched on it runs in the stream's order: after all work that was launched earlier, and
/// before the next node of the same stream. The host is its own device, so a launch runs the work at once, on
/// the worker that runs the stream.
///
/// ```
/// use anabranch::{Executor, Graph, HostStream, Inputs};
///
/// let mut g = Graph::new();
/// let x = g.kernel("x", (), |_: &mut HostStream| 1 + 1);
/// g.output("x", &x);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(*futures::executor::block_on(run)?.take::<i32>("x")?, 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug)]
pub struct HostStream {
    id: u32,
}

impl HostStream {
    pub(crate) fn new(id: u32) -> Self {
        Self { id }
    }

    /// Returns the stream's number in its plan.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Launches `work` on this stream and returns what it returns.
    pub fn launch<R>(&mut self, work: impl FnOnce() -> R) -> R {
        work()
    }
}
