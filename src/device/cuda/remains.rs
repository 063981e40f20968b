//! What is left of a GPU that nobody uses any more: given back to the driver, on a thread of its own, once
//! its streams have come to their ends.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::driver::{Driver, SUCCESS};
use super::dropped::{Dropped, Memories};
use super::events::Events;
use super::graphs::Graphs;
use super::host_memory::HostPool;
use super::lane::CudaLane;
use super::modules::Modules;

/// Pauses between two checks of the streams that libraries still hold. Each is twice the one before, up to
/// the last.
const LENT_PAUSE_FIRST: Duration = Duration::from_millis(1);
const LENT_PAUSE_LAST: Duration = Duration::from_secs(10);

pub(super) struct Remains {
    pub(super) driver: &'static Driver,
    pub(super) lanes: Box<[Arc<CudaLane>]>,
    pub(super) limbo: Vec<Dropped>,
    pub(super) graphs: Graphs,
    pub(super) host_pool: HostPool,
    pub(super) modules: Modules,
    pub(super) events: Events,
    /// Last, because all others are of it.
    pub(super) context: Arc<Context>,
}

impl Remains {
    pub(super) fn end(mut self) {
        let driver = self.driver;
        // Only a lost device gives an error.
        let _ = self.context.make_current();
        self.lanes.iter().for_each(|lane| lane.stream.synchronize());
        for dropped in self.limbo.drain(..) {
            match dropped.what {
                Memories::Host(block) => block.free(driver),
                Memories::Device(address) => {
                    let stream = self.lanes[dropped.uses[0].0 as usize].stream.handle();
                    // SAFETY: all use of it is over.
                    let code = unsafe { (driver.free)(address, stream) };
                    debug_assert!(code == SUCCESS || !driver.fault(code).name.is_empty());
                }
            }
        }
        self.graphs.destroy(driver);
        self.host_pool.drain().for_each(|block| block.free(driver));
        self.modules.unload(driver);
        self.events.destroy(driver);
        // There is no notice when a library drops its last clone of a stream.
        let (mut lent, mut pause) = (self.lanes.into_vec(), LENT_PAUSE_FIRST);
        loop {
            lent.retain(|lane| !lane.stream.regain());
            if lent.is_empty() && self.context.regain() {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LENT_PAUSE_LAST);
        }
    }
}
