//! Completion: a function is called once when a lane of a device reaches a point.
//!
//! The waker that waits on the lane has the function. The reactor's wake calls it; or the registration does,
//! if the point has passed already.
//!
//! ```text
//!  function    event                         next     then
//!  there       wake, point not reached       there    the waker is registered on the lane
//!  there       wake, point reached or lost   none     it is called, outside of the lock
//!  none        wake                          none     nothing: another thread has called it
//! ```

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
    Arc::new(Continuation { devices: devices.clone(), lane, point, follow: Mutex::new(Some(follow)) }).wake();
}

struct Continuation<F> {
    devices: Arc<Devices>,
    lane: LaneId,
    point: u64,
    /// None after the call.
    follow: Mutex<Option<F>>,
}

impl<F: FnOnce(Result<(), Error>) + Send + 'static> Wake for Continuation<F> {
    fn wake(self: Arc<Self>) {
        if let Poll::Ready(outcome) = self.devices.poll(self.lane, self.point, &Waker::from(self.clone())) {
            // The reactor may wake this during its registration, so two threads may come here.
            let follow = lock(&self.follow).take();
            if let Some(follow) = follow {
                self.devices.note_reached(self.lane, self.point);
                follow(outcome.map_err(|fault| self.devices.device(self.lane).judge(&fault)));
            }
        }
        // This may be the last owner of a run or an engine, whose drop runs user code.
        let _ = shielded(|| drop(self));
    }
}
