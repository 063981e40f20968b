//! The cost of a call for its caller, in nanoseconds: the part of a measurement over this driver that does
//! not belong to the library.

use std::time::{Duration, Instant};

use anabranch_soft_cuda::{Client, Param};
use cudarc::driver::{CudaContext, result, sys};
use cudarc::nvrtc::Ptx;

const CALLS: u32 = 200_000;
const PTX: &str = ".version 8.0\n.visible .entry nothing()\n{ ret; }\n.visible .entry touch(.param .u64 data)\n{ ret; }";

/// Runs the call many times, with an occasional wait for the stream, and prints the time of the calls alone.
fn measure(name: &str, stream: sys::CUstream, mut call: impl FnMut() -> u32) {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let begin = Instant::now();
        for _ in 0..CALLS / 20 {
            assert_eq!(call(), 0, "{name}");
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(CALLS / 20));
        // SAFETY: the stream is live.
        let _ = unsafe { result::stream::synchronize(stream) };
    }
    println!("{name:<28} {best:7.0} ns");
}

/// Makes one call at a time, after the stream's thread has gone to sleep, and prints the median.
fn measure_asleep(name: &str, stream: sys::CUstream, mut call: impl FnMut() -> u32) {
    let mut times: Vec<u128> = (0..500)
        .map(|_| {
            // SAFETY: the stream is live.
            let _ = unsafe { result::stream::synchronize(stream) };
            std::thread::sleep(Duration::from_micros(200));
            let begin = Instant::now();
            assert_eq!(call(), 0, "{name}");
            begin.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    println!("{name:<28} {:7} ns", times[times.len() / 2]);
}

fn code(result: Result<(), result::DriverError>) -> u32 {
    result.map_or_else(|error| error.0 as u32, |()| 0)
}

#[allow(clippy::multiple_unsafe_ops_per_block, reason = "a row of driver calls stands on one ground")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::beside_this_test()?;
    client.register_kernel("nothing", &[], |_| {});
    client.register_kernel("touch", &[Param::WRITE], |_| {});
    for is_tracked in [true, false] {
        println!("races {}", if is_tracked { "tracked" } else { "not tracked" });
        let device = client.next_device();
        device.track_races(is_tracked);
        let context = CudaContext::new(device.ordinal())?;
        let module = context.load_module(Ptx::from_src(PTX))?;
        let (nothing, touch) = (module.load_function("nothing")?, module.load_function("touch")?);
        let (first, second) = (context.new_stream()?, context.new_stream()?);
        let (one, other) = (first.cu_stream(), second.cu_stream());
        let kept = context.new_event(None)?;
        let event = kept.cu_event();
        // SAFETY: all objects are live until the end of `main`, and every call gets arguments of its types.
        unsafe {
            let mut address = result::malloc_sync(8)?;
            let word = result::malloc_host(8, 0)? as u64;
            let shape = (1, 1, 1);
            measure("launch", one, || code(result::launch_kernel(nothing.cu_function(), shape, shape, 0, one, &mut [])));
            measure_asleep("launch, thread asleep", one, || {
                code(result::launch_kernel(nothing.cu_function(), shape, shape, 0, one, &mut []))
            });
            measure("launch with a buffer", one, || {
                let mut params = [(&raw mut address).cast()];
                code(result::launch_kernel(touch.cu_function(), shape, shape, 0, one, &mut params))
            });
            measure("record", one, || code(result::event::record(event, one)));
            measure("wait", one, || sys::cuStreamWaitEvent(other, event, 0) as u32);
            measure("write a value", one, || sys::cuStreamWriteValue64_v2(one, word, 1, 0) as u32);
            measure("query a stream", one, || sys::cuStreamQuery(one) as u32);
            measure("query an event", one, || code(result::event::query(event)));
            result::free_sync(address)?;
            result::free_host(word as *mut _)?;
        }
    }
    Ok(())
}
