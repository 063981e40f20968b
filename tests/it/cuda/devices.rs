//! Several devices in one graph, and libraries that enqueue work on a node's stream.

use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs, Plan, Value, inputs};
use anabranch_soft_cuda::Which;

use super::{Gpu, adding, download, upload};
use crate::support::{Dice, block_on, plan, value_of};

fn fetch(s: &mut DeviceStream, x: &Buffer<f32>) -> Result<Buffer<f32>, anabranch::BoxError> {
    Ok(s.fetch(x)?)
}

/// Two GPUs and an executor of both.
fn pair() -> ([Gpu; 2], Executor) {
    let gpus = [Gpu::new(), Gpu::new()];
    let exec = of_both([&gpus[0], &gpus[1]]);
    (gpus, exec)
}

fn of_both(gpus: [&Gpu; 2]) -> Executor {
    Executor::builder().workers(2).cuda(&gpus.map(|gpu| gpu.device.ordinal() as u32)).build().unwrap()
}

/// Sums on two devices. Buffers of the other device are fetched first.
fn random(seed: u64) -> Graph {
    let (mut g, mut dice) = (Graph::new(), Dice::new(seed));
    let x = g.input::<Vec<f32>>("x");
    let mut made: Vec<(Value<Buffer<f32>>, u32)> = Vec::new();
    for device in [0, 1] {
        let up = g.try_kernel(format!("up {device}"), &x, upload);
        g.node(&up).devices([device]);
        made.push((up, device));
    }
    for node in 0..30 {
        let device = dice.below(2) as u32;
        let [a, b] = [(); 2].map(|()| made[made.len() - 1 - dice.below(made.len().min(5))]);
        let near = [a, b].map(|(value, home)| {
            if home == device {
                return value;
            }
            let near = g.try_kernel(format!("fetch {}", g.shape().nodes().len()), &value, fetch);
            g.node(&near).devices([device]);
            near
        });
        let sum = g.try_kernel(node.to_string(), (&near[0], &near[1]), adding());
        g.node(&sum).devices([device]);
        made.push((sum, device));
    }
    for (number, (value, device)) in made.into_iter().enumerate() {
        let down = g.try_kernel(format!("down {number}"), &value, download);
        g.node(&down).devices([device]);
        g.output(number.to_string(), &down);
    }
    g
}

fn all(exec: &Executor, plan: &Plan, outputs: usize) -> Vec<Vec<f32>> {
    let mut given = block_on(exec.run(plan, inputs! { "x" => vec![0.3_f32, 1.7] })).unwrap();
    (0..outputs).map(|name| given.take::<HostBuffer<f32>>(&name.to_string()).unwrap().to_vec()).collect()
}

fn is_as_on_the_host(exec: &Executor) {
    for seed in 0..20 {
        let plan = random(seed).compile().unwrap();
        assert_eq!(all(exec, &plan, 32), all(&Executor::inline(), &plan, 32), "seed {seed}");
    }
}

#[test]
fn a_device_that_is_given_twice_counts_as_two() {
    let gpu = Gpu::new();
    let exec = of_both([&gpu, &gpu]);
    is_as_on_the_host(&exec);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn graphs_over_two_devices_give_what_the_host_gives() {
    let (gpus, exec) = pair();
    is_as_on_the_host(&exec);
    assert!(gpus.iter().any(|gpu| gpu.device.calls_of("cuMemcpyPeerAsync") > 0));
    drop(exec);
    gpus.iter().for_each(Gpu::is_clean);
}

#[test]
fn the_loss_of_one_device_leaves_the_other() {
    let (gpus, exec) = pair();
    let on = |device: u32| {
        let mut g = Graph::new();
        let up = g.try_kernel("up", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32])?));
        let down = g.try_kernel("down", &up, download);
        g.node(&up).devices([device]);
        g.node(&down).devices([device]);
        g.output("down", &down);
        plan(&g)
    };
    let (first, second) = (on(0), on(1));
    gpus[0].device.fail_operation(Which::Copy, 1, anabranch_soft_cuda::Code(719));
    assert!(block_on(exec.run(&first, Inputs::new())).unwrap_err().is_device_lost());
    assert_eq!(value_of::<HostBuffer<f32>>(block_on(exec.run(&second, Inputs::new())), "down")[..], [1.0]);
    assert!(block_on(exec.run(&first, Inputs::new())).unwrap_err().is_device_lost());
    drop(exec);
    gpus[1].is_clean();
}

#[test]
fn a_buffer_of_another_device_must_be_fetched() {
    let (gpus, exec) = pair();
    let mut g = Graph::new();
    let up = g.try_kernel("up", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32])?));
    let sum = g.try_kernel("sum", (&up, &up), adding());
    g.node(&sum).devices([1]);
    g.output("sum", &sum);
    let error = block_on(exec.run(&plan(&g), Inputs::new())).unwrap_err();
    let [from, to] = [0, 1].map(|gpu: usize| gpus[gpu].device.ordinal());
    let said = format!("a buffer of CUDA device {from} is used on a stream of CUDA device {to}: ");
    assert!(format!("{error:#}").contains(&said), "{error:#}");
    drop((exec, error));
    gpus.iter().for_each(Gpu::is_clean);
}

#[test]
fn a_library_enqueues_on_the_stream_of_its_node() {
    let gpu = Gpu::new();
    let mut g = Graph::new();
    let up = g.try_kernel("up", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32; 16])?));
    let bytes = g.try_kernel("library", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<u8>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        let (_, address) = (raw.read(x)?, raw.write(&mut y)?);
        // SAFETY: the buffer has this number of bytes.
        unsafe { cudarc::driver::result::memset_d8_async(address, 7, y.len(), raw.stream().cu_stream())? };
        Ok(y)
    });
    let down = g.try_kernel("down", &bytes, |s: &mut DeviceStream, y: &Buffer<u8>| Ok(s.download(y)?));
    g.output("down", &down);
    let exec = gpu.executor(1);
    assert_eq!(value_of::<HostBuffer<u8>>(block_on(exec.run(&plan(&g), Inputs::new())), "down")[..], [7; 16]);
    let on_host = block_on(Executor::inline().run(&plan(&g), Inputs::new())).unwrap_err();
    assert!(format!("{on_host:#}").ends_with("a CUDA device is needed"));
    drop(exec);
    gpu.is_clean();
}
