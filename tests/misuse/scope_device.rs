//! Stores of the device in operations of the host, and the other way round.

use anabranch::scope::{DeviceTile, DeviceTileMut, Streaming, Tile, TileMut};
use anabranch::{DeviceStream, Graph};

fn main() {
    let mut g = Graph::new();
    g.scope("s", Streaming::strict(), |s| {
        let (host, device) = (s.store::<f32, 1>("host", [8]), s.device_store::<f32, 1>("device", [8]));
        s.write("reads the device", &device, &host, |from: Tile<f32, 1>, mut to: TileMut<f32, 1>| to.fill(from[[0]]));
        s.write("writes the device", (), &device, |mut to: TileMut<f32, 1>| to.fill(1.0));
        s.write_kernel("writes the host", (), &host, |s: &mut DeviceStream, mut to: DeviceTileMut<f32, 1>| Ok(s.fill(&mut to, 1.0)?));
        s.write_kernel("no stream", (), &device, |to: DeviceTileMut<f32, 1>| assert!(to.is_empty()));
        s.write_kernel("a tile of the host", &device, &device, |_: &mut DeviceStream, _: Tile<f32, 1>, _: DeviceTileMut<f32, 1>| Ok(()));
        s.keep(&device);
        let mut other = None;
        s.write_kernel("a tile that is kept", (), &device, move |_: &mut DeviceStream, to: DeviceTileMut<f32, 1>| {
            other = Some(to);
            Ok(())
        });
        s.write_kernel("swapped", &device, &device, |s: &mut DeviceStream, _: DeviceTile<f32, 1>, mut to: DeviceTileMut<f32, 1>| {
            let mut own = s.alloc::<f32>(8)?;
            std::mem::swap(&mut *to, &mut *own);
            Ok(())
        });
    });
}
