//! FILL, INC and SUM of an array that is never in memory: its tiles stream through a core's cache.
//!
//! ```text
//! cargo run --release --example sums -- [ELEMENTS]
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch::scope::{Streaming, Sum, Tile, TileMut};
use anabranch::{Executor, Graph, inputs};

/// A memory meter: what the program has, and the most that it had.
struct Meter;

#[global_allocator]
static METER: Meter = Meter;
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let elements: usize = std::env::args()
        .nth(1)
        .map_or(Ok(10_000_000), |count| count.parse())
        .map_err(|_| "give the number of elements, such as 1000000")?;
    let exec = Executor::host()?;
    for (name, streaming) in [("streamed", Streaming::strict()), ("not streamed", Streaming::off())] {
        let mut g = Graph::new();
        let total = g.scope("sums", streaming, |s| {
            let a = s.store("a", [elements]);
            s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
            let b = s.update("inc", (), &a, |mut a: TileMut<f64, 1>| a.as_mut_slice().iter_mut().for_each(|x| *x += 1.0));
            s.fold("sum", &b, Sum, |b: Tile<f64, 1>| b.as_slice().iter().sum::<f64>())
        });
        g.output("total", &total);
        let plan = g.compile()?;
        let scope = plan.scope("sums").expect("the graph has it");

        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! {}))?;
        let peak = PEAK.load(Ordering::Relaxed) - before;
        let total = outputs.take::<f64>("total")?;
        println!("{name:12}  sum {total}  peak {:9.3} MB, planned {:9.3} MB", mb(peak as u64), mb(scope.peak_bytes()));
        assert_eq!(*total, 2.0 * elements as f64);
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
