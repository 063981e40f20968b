//! The node whose body a thread calls for a simulated device. It accounts for all uses of memory by that
//! body.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::clock::{Clock, Epoch};
use super::memory::Block;
use super::order::Key;
use super::sanitizer::Sanitizer;
use super::shadow::Shadow;
use crate::device::queue::Memory;
use crate::error::{How, Race, Site, Use};

std::thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
    /// Whether there is one. A thread reads this without the check for destructors.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

struct Here {
    sanitizer: Arc<Sanitizer>,
    site: Arc<Site>,
    epoch: Epoch,
    clock: Clock,
    /// The first race of the node.
    race: Option<Race>,
}

/// Calls the body of a node as work of a strand. Returns the first race of the body's uses of memory.
pub(crate) fn within<R>(sanitizer: &Arc<Sanitizer>, strand: Key, site: Site, body: impl FnOnce() -> R) -> (R, Option<Race>) {
    let (epoch, clock) = {
        let mut clocks = sanitizer.clocks();
        let mut clock = clocks.clock(strand);
        let epoch = clocks.tick(strand, &mut clock);
        clocks.learn(strand, &clock);
        (epoch, clock)
    };
    let here = Here { sanitizer: sanitizer.clone(), site: Arc::new(site), epoch, clock, race: None };
    let around = Around(set(Some(here)));
    let result = body();
    let race = HERE.with_borrow_mut(|here| here.as_mut().and_then(|here| here.race.take()));
    drop(around);
    (result, race)
}

fn set(here: Option<Here>) -> Option<Here> {
    IS_HERE.set(here.is_some());
    HERE.try_with(|current| current.replace(here)).ok().flatten()
}

/// Restores the surrounding node, even if the body panics.
struct Around(Option<Here>);

impl Drop for Around {
    fn drop(&mut self) {
        let around = self.0.take();
        drop(set(around));
    }
}

/// Returns memory of a simulated device if this thread calls a body for one. The inner option is None if
/// there is not that much memory.
#[inline(always)]
pub(in crate::device) fn allocate(bytes: usize, align: usize) -> Option<Option<Box<dyn Memory>>> {
    if IS_HERE.get() { allocate_here(bytes, align) } else { None }
}

#[cold]
#[inline(never)]
fn allocate_here(bytes: usize, align: usize) -> Option<Option<Box<dyn Memory>>> {
    let sanitizer = HERE.try_with(|here| here.borrow().as_ref().map(|here| here.sanitizer.clone())).ok().flatten()?;
    let shadow = Shadow::new(&sanitizer, bytes);
    touch(&shadow, 0..bytes, How::Allocates);
    Some(Block::allocate(bytes, align, shadow))
}

/// Records a use by the node whose body this thread calls. Threads that call none belong to the host, and no
/// stream orders their uses.
pub(super) fn touch(shadow: &Shadow, bytes: Range<usize>, how: How) {
    let _ = HERE.try_with(|here| {
        let mut here = here.borrow_mut();
        let Some(here) = here.as_mut().filter(|here| shadow.is_of(&here.sanitizer)) else { return };
        let race = shadow.note(bytes, Use { site: here.site.clone(), how }, here.epoch, &here.clock);
        here.race = here.race.take().or(race);
    });
}
