//! Events: `cuEvent*`.

use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Out;
use super::enter::{on_context, on_object, on_stream, owner};
use crate::code::Code;
use crate::driver::calls::Api;
use crate::driver::event::Event;
use crate::driver::table::{Handle, Kind};

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<Handle>, _flags: c_uint) -> u32 {
    on_context(Api::cuEventCreate, |call| {
        let device = call.device;
        if event.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // ORDERING: Relaxed: the numbers only have to differ.
        let number = device.numbers.last_event.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        let handle = device.events.add(Arc::new(Event::new(device, number)));
        call.note(|| format!("event={}", number));
        event.put(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    on_object(Api::cuEventDestroy_v2, event, Kind::Event, |call| {
        let event = call.device.events.remove(event)?;
        call.note(|| format!("event={}", event.number));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    on_stream(Api::cuEventRecord, stream, |call, stream| {
        let event = owner(event, Kind::Event)?.events.get(event)?;
        call.note(|| format!("event={}", event.number));
        event.record(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> u32 {
    on_object(Api::cuEventQuery, event, Kind::Event, |call| {
        let event = call.device.events.get(event)?;
        call.note(|| format!("event={}", event.number));
        event.query()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    on_object(Api::cuEventSynchronize, event, Kind::Event, |call| {
        let event = call.device.events.get(event)?;
        call.note(|| format!("event={}", event.number));
        event.synchronize()
    })
}
