//! Graphs of sums on a device, with the same bits on every device. Used with the software driver, and with
//! real GPUs (`tests/cuda.rs`).

use anabranch::device::{In, Out};
use anabranch::device::{Kernel, Launch};
use anabranch::graph::Each;
use anabranch::{Buffer, DeviceStream, Graph, HostBuffer, Value};

use crate::dice::Dice;

pub(crate) fn add_on_host(a: &[f32], b: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = a + b);
}

type Add = (In<f32>, In<f32>, Out<f32>, u32);

/// `y = a + b`.
pub(crate) fn add() -> Kernel<Add> {
    // SAFETY: the kernel has these parameters. A thread reads and writes the element of its own number, below
    // the length of the launch, which all three buffers have.
    unsafe { Kernel::<Add>::ptx("add", include_str!("add.ptx")) }.twin(|_, (a, b, y, _)| add_on_host(a, b, y))
}

pub(crate) fn upload(s: &mut DeviceStream, x: &Vec<f32>) -> anabranch::Result<Buffer<f32>, anabranch::BoxError> {
    Ok(s.upload(x)?)
}

pub(crate) fn download(s: &mut DeviceStream, x: &Buffer<f32>) -> anabranch::Result<HostBuffer<f32>, anabranch::BoxError> {
    Ok(s.download(x)?)
}

/// The body of a node that adds two buffers.
pub(crate) fn adding() -> impl Fn(&mut DeviceStream, &Buffer<f32>, &Buffer<f32>) -> Result<Buffer<f32>, anabranch::BoxError> {
    let add = add();
    move |s, a, b| {
        let mut y = s.alloc(a.len())?;
        s.launch(&add, Launch::for_len(a.len()), (a, b, &mut y, a.len() as u32))?;
        Ok(y)
    }
}

/// A random graph of sums.
pub(crate) fn random(seed: u64, nodes: usize) -> Graph {
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let last = sums(&mut g, &x, seed, nodes);
    g.output("bits", &last);
    g
}

/// Adds random sums: some of buffers on the device, some of vectors on the host, with transfers between them.
/// Returns the bits of all of them together.
pub(crate) fn sums(g: &mut Graph, x: &Value<Vec<f32>>, seed: u64, nodes: usize) -> Value<Vec<u32>> {
    let mut dice = Dice::new(seed);
    let mut hosts: Vec<Value<Vec<f32>>> = vec![*x];
    let mut devices: Vec<Value<Buffer<f32>>> = vec![g.try_kernel("first", x, upload)];
    let mut unread = devices.clone();
    for node in 0..nodes {
        let name = node.to_string();
        let pick = |dice: &mut Dice, len: usize| len - 1 - dice.below(len.min(6));
        let (a, b) = (devices[pick(&mut dice, devices.len())], devices[pick(&mut dice, devices.len())]);
        match dice.below(10) {
            0 => devices.push(g.try_kernel(name, &hosts[pick(&mut dice, hosts.len())], upload)),
            1 => {
                let down = g.try_kernel(format!("down {name}"), &a, download);
                let halves = |x: &HostBuffer<f32>| x.iter().map(|x| x * 0.5).collect::<Vec<f32>>();
                let half = g.task(name, &down, halves);
                let command = ["odd", "even"][node % 2];
                g.node(&half).command(command);
                hosts.push(half);
            }
            _ => devices.push(g.try_kernel(name, (&a, &b), adding())),
        }
        unread.extend(devices.last());
    }
    let total = g.try_kernel("total", &unread[..], |s: &mut DeviceStream, all: Each<'_, Buffer<f32>>| {
        let add = add();
        let mut sum = s.alloc::<f32>(all.iter().next().map_or(0, |x| x.len()))?;
        s.fill(&mut sum, 0.0)?;
        for x in all.iter() {
            let mut next = s.alloc::<f32>(x.len())?;
            s.launch(&add, Launch::for_len(x.len()), (&sum, x, &mut next, x.len() as u32))?;
            sum = next;
        }
        Ok(sum)
    });
    let down = g.try_kernel("down", &total, download);
    g.task("last", (&down, &hosts[..]), |x: &HostBuffer<f32>, hosts: Each<'_, Vec<f32>>| {
        let bits = |x: &f32| x.to_bits();
        let mut all: Vec<u32> = x.iter().map(bits).collect();
        hosts.iter().for_each(|host| all.extend(host.iter().map(bits)));
        all
    })
}
