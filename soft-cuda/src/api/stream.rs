//! Streams: `cuStream*`, `cuLaunchHostFunc`, and the beginning and end of a capture.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::enter::{on_context, on_stream, owner};
use super::{Address, Out};
use crate::code::{Code, Outcome};
use crate::driver::callback::{HostCall, HostFunction};
use crate::driver::calls::Api;
use crate::driver::capture::Status;
use crate::driver::command::{Command, WriteValue};
use crate::driver::stream::Stream;
use crate::driver::table::{Handle, Kind};

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: Out<Handle>, _flags: c_uint) -> u32 {
    create(Api::cuStreamCreate, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: Out<Handle>, _flags: c_uint, _priority: c_int) -> u32 {
    create(Api::cuStreamCreateWithPriority, stream)
}

fn create(api: Api, stream: Out<Handle>) -> u32 {
    on_context(api, |call| {
        let device = call.device;
        if stream.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // ORDERING: Relaxed: the numbers only have to differ.
        let number = device.numbers.last_stream.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        let handle = device.streams.add(Arc::new(Stream::new(device, number)));
        call.note(|| format!("stream={}", number));
        stream.put(handle)
    })
}

/// Returns at once. Issued work is still done.
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    on_stream(Api::cuStreamDestroy_v2, stream, |call, _| {
        let stream = call.device.streams.remove(stream)?;
        call.device.retire(stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    on_stream(Api::cuStreamQuery, stream, |_, stream| stream.query())
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    on_stream(Api::cuStreamSynchronize, stream, |_, stream| stream.synchronize())
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> u32 {
    on_stream(Api::cuStreamWaitEvent, stream, |call, stream| {
        let event = owner(event, Kind::Event)?.events.get(event)?;
        call.note(|| format!("event={}", event.number));
        event.make_wait(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, argument: Address) -> u32 {
    on_stream(Api::cuLaunchHostFunc, stream, |_, stream| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        stream.submit(Command::Call(HostCall { function, argument: argument as usize })).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, _flags: c_uint) -> u32 {
    write_value(Api::cuStreamWriteValue32_v2, stream, address, u64::from(value), false)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, _flags: c_uint) -> u32 {
    write_value(Api::cuStreamWriteValue64_v2, stream, address, value, true)
}

fn write_value(api: Api, stream: Handle, address: u64, value: u64, is_64_bit: bool) -> u32 {
    on_stream(api, stream, |call, stream| {
        call.device.check_values_supported(is_64_bit)?;
        let into = address as usize;
        if into == 0 || !into.is_multiple_of(if is_64_bit { 8 } else { 4 }) {
            return Err(Code::INVALID_VALUE);
        }
        call.note(|| format!("value={value}"));
        stream.submit(Command::WriteValue(WriteValue { into, value, is_64_bit })).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> u32 {
    on_stream(Api::cuStreamBeginCapture_v2, stream, |_, stream| {
        if mode > 2 {
            return Err(Code::INVALID_VALUE);
        }
        // The default stream waits for all others, so it cannot be captured.
        if stream.number == 0 { Err(Code::CAPTURE_UNSUPPORTED) } else { stream.begin_capture() }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> u32 {
    on_stream(Api::cuStreamEndCapture, stream, |call, stream| {
        let end = || -> Outcome<Handle> {
            let captured = stream.end_capture()?;
            Ok(call.device.graphs.add(captured))
        };
        match end() {
            Ok(handle) => graph.put(handle),
            Err(code) => {
                graph.put(Handle::NULL)?;
                Err(code)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: Handle, status: Out<Status>) -> u32 {
    on_stream(Api::cuStreamIsCapturing, stream, |_, stream| status.put(stream.capture_status()))
}
