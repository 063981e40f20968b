//! Completion: what follows when a lane of a device reaches a point.
//!
//! The follower lies in the waker that waits on the lane. It is called once: by the reactor, which wakes, or
//! at once, if the point has passed already.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use super::{Devices, LaneId};
use crate::error::{Error, shielded};
use crate::sync::{Mutex, lock};

/// Calls `follow` once the lane has reached the point, or has failed before.
pub(crate) fn when_reached<F>(devices: &Arc<Devices>, lane: LaneId, point: u64, follow: F)
where
    F: FnOnce(Result<(), Error>) + Send + 'static,
{
    Arc::new(Completion { devices: devices.clone(), lane, point, follow: Mutex::new(Some(follow)) }).wake();
}

struct Completion<F> {
    devices: Arc<Devices>,
    lane: LaneId,
    point: u64,
    /// None once it was called.
    follow: Mutex<Option<F>>,
}

impl<F: FnOnce(Result<(), Error>) + Send + 'static> Wake for Completion<F> {
    fn wake(self: Arc<Self>) {
        if let Poll::Ready(outcome) = self.devices.poll(self.lane, self.point, &Waker::from(self.clone())) {
            // The reactor may wake this while it is being registered, so two threads may come here.
            let follow = lock(&self.follow).take();
            if let Some(follow) = follow {
                follow(outcome.map_err(|fault| self.devices.device(self.lane).judge(&fault)));
            }
        }
        // This may be the last owner of a run or an engine: what its drop drops is foreign.
        let _ = shielded(|| drop(self));
    }
}
