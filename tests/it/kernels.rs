//! Kernels, buffers and twins, on every executor of the host.

use anabranch::device::{In, Kernel, Launch, Out};
use anabranch::{Buffer, DeviceStream, Graph, HostBuffer, Inputs, Value, inputs, take};

use crate::support::{block_on, executors, plan, value_of};

type Saxpy = (f32, In<f32>, Out<f32>, u32);

/// `y = a * x + y`, with its twin.
fn saxpy() -> Kernel<Saxpy> {
    // SAFETY: there is no code, so no GPU launches it.
    unsafe { Kernel::<Saxpy>::cuda_c("saxpy", "") }.twin(|launch, (a, x, y, n)| {
        assert!(launch.grid[0] * launch.block[0] >= n);
        y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
    })
}

#[test]
fn a_twin_works_on_buffers_in_place() {
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let up = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
    let sum = g.try_kernel("ones", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut ones = s.alloc(x.len())?;
        s.fill(&mut ones, 1.0_f32)?;
        Ok(ones)
    });
    let saxpy = saxpy();
    let sum = g.try_kernel("saxpy", (&up, take(&sum)), move |s: &mut DeviceStream, x: &Buffer<f32>, mut y: Buffer<f32>| {
        s.launch(&saxpy, Launch::for_len(x.len()), (3.0, x, &mut y, x.len() as u32))?;
        Ok(y)
    });
    let down = g.try_kernel("down", &sum, |s: &mut DeviceStream, y: &Buffer<f32>| Ok(s.download(y)?));
    let out = g.task("out", &down, |y: &HostBuffer<f32>| y.to_vec());
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        let outputs = block_on(exec.run(&plan, inputs! { "x" => vec![1.0_f32, 2.0, 4.0] }));
        assert_eq!(*value_of::<Vec<f32>>(outputs, "out"), [4.0, 7.0, 13.0]);
    }
}

/// Runs one kernel, and returns the cause in the run's error.
fn fault(work: impl Fn(&mut DeviceStream) -> anabranch::Result<()> + Send + Sync + 'static) -> String {
    let mut g = Graph::new();
    let done = g.try_kernel("work", (), move |s: &mut DeviceStream| Ok(work(s)?));
    g.output("done", &done);
    let error = block_on(anabranch::Executor::inline().run(&plan(&g), Inputs::new())).unwrap_err();
    assert_eq!(error.node(), Some("work"));
    std::error::Error::source(&error).unwrap().to_string()
}

#[test]
fn what_a_kernel_cannot_do_is_an_error() {
    let lengths = fault(|s| {
        let (from, mut to) = (s.alloc::<u8>(3)?, s.alloc::<u8>(4)?);
        s.copy(&from, &mut to)
    });
    assert_eq!(lengths, "the target of a copy has 4 elements, not 3");
    let huge = fault(|s| s.alloc::<u64>(1 << 44).map(drop));
    let wanted = "the host device has no 140737488355328 bytes of memory left: use smaller buffers, or fewer runs at once";
    assert_eq!(huge, wanted);
    // SAFETY: there is no code, so no GPU launches it.
    let lonely = unsafe { Kernel::<(u32,)>::ptx("lonely", "") };
    let twin = fault(move |s| s.launch(&lonely, Launch::for_len(1), (1,)));
    assert_eq!(twin, "kernel 'lonely' has no twin, so a host cannot run it: give it one with Kernel::twin, or use a CUDA device");
}

#[test]
fn out_of_memory_is_told_apart() {
    let mut g = Graph::new();
    let done = g.try_kernel("work", (), |s: &mut DeviceStream| Ok(s.alloc::<u64>(1 << 44).map(drop)?));
    g.output("done", &done);
    let error = block_on(anabranch::Executor::inline().run(&plan(&g), Inputs::new())).unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(!error.is_device_lost());
}

#[test]
fn copies_and_fills_keep_to_their_buffers() {
    let mut g = Graph::new();
    let work = |s: &mut DeviceStream| {
        let mut from = s.alloc::<u16>(5)?;
        s.fill(&mut from, 0x0102)?;
        let (mut to, empty) = (s.alloc::<u16>(5)?, s.alloc::<u16>(0)?);
        s.copy(&from, &mut to)?;
        assert!(empty.is_empty() && s.download(&empty)?.is_empty());
        assert_eq!(to.size_bytes(), 10);
        Ok(s.download(&to)?)
    };
    let done = g.try_kernel("work", (), work);
    g.output("done", &done);
    for exec in executors() {
        let done = value_of::<HostBuffer<u16>>(block_on(exec.run(&plan(&g), Inputs::new())), "done");
        assert_eq!(done[..], [0x0102; 5]);
    }
}

#[test]
fn a_launch_covers_every_element_once_at_most_blocks() {
    assert_eq!(Launch::for_len(0).grid, [1, 1, 1]);
    assert_eq!(Launch::for_len(256).grid, [1, 1, 1]);
    assert_eq!(Launch::for_len(257).grid, [2, 1, 1]);
    assert_eq!(Launch::for_len(usize::MAX).grid, [i32::MAX as u32, 1, 1]);
}

#[test]
fn what_is_empty_is_made_copied_and_filled_like_any_other() {
    let mut g = Graph::new();
    let empty = empties(&mut g);
    lengths(&mut g, &empty);
    let plan = plan(&g);
    for exec in executors() {
        assert_eq!(*value_of::<usize>(block_on(exec.run(&plan, Inputs::new())), "lengths"), 0);
    }
}

/// A node that performs every operation on buffers without elements.
pub(crate) fn empties(g: &mut Graph) -> Value<Empty> {
    g.try_kernel("empty", (), |s: &mut DeviceStream| {
        let (mut one, mut other) = (s.alloc::<u64>(0)?, s.upload::<u64>(&[])?);
        s.fill(&mut one, 0x0102_0304_0506_0708)?;
        s.copy(&one, &mut other)?;
        let mut bytes = s.alloc::<u8>(0)?;
        s.fill(&mut bytes, 1)?;
        Ok((s.fetch(&other)?, s.download(&one)?, s.download(&bytes)?))
    })
}

/// Reads the downloads of these buffers.
pub(crate) fn lengths(g: &mut Graph, empty: &Value<Empty>) {
    let lengths = g.task("lengths", empty, |(there, here, bytes): &Empty| there.len() + here.len() + bytes.len());
    g.output("lengths", &lengths);
}

type Empty = (Buffer<u64>, HostBuffer<u64>, HostBuffer<u8>);

#[test]
fn a_launch_without_threads_is_an_error() {
    for (grid, block) in [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [256, 1, 0])] {
        let said = fault(move |s| {
            let (x, mut y) = (s.alloc::<f32>(1)?, s.alloc::<f32>(1)?);
            s.launch(&saxpy(), Launch::new(grid, block), (1.0, &x, &mut y, 0))
        });
        let wanted =
            format!("kernel 'saxpy' is launched without a thread: grid {grid:?}, block {block:?}; each number must be 1 or more");
        assert_eq!(said, wanted);
    }
}
