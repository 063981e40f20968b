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

/// The flag for an event that only orders work.
const DISABLE_TIMING: c_uint = 2;

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<Handle>, flags: c_uint) -> u32 {
    on_context(Api::cuEventCreate, |call| {
        let device = call.device;
        if event.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // ORDERING: Relaxed: the numbers only have to differ.
        let number = device.numbers.last_event.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        let handle = device.events.add(Arc::new(Event::new(device, number, flags & DISABLE_TIMING == 0)));
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

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(ms: Out<f32>, from: Handle, to: Handle) -> u32 {
    elapsed(Api::cuEventElapsedTime, ms, from, to)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(ms: Out<f32>, from: Handle, to: Handle) -> u32 {
    elapsed(Api::cuEventElapsedTime_v2, ms, from, to)
}

fn elapsed(api: Api, ms: Out<f32>, from: Handle, to: Handle) -> u32 {
    on_object(api, to, Kind::Event, |call| {
        let (from, to) = (owner(from, Kind::Event)?.events.get(from)?, call.device.events.get(to)?);
        call.note(|| format!("from={} to={}", from.number, to.number));
        ms.put(to.ms_since(&from)?)
    })
}
