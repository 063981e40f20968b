//! scratch
use anabranch::*;
use std::{path::PathBuf, sync::Arc};
struct HostStream;
fn main() {
    let mut g = Graph::new();
    let path = g.input::<PathBuf>("path");
    let bytes = g.future("read", &path, async |p: Arc<PathBuf>| Ok(tokio::fs::read(&*p).await?));
    let image = g.task("decode", &bytes, |b: &Vec<u8>| b.len());
    let small = g.kernel("resize", &image, |_s: &mut HostStream, img: &usize| *img / 2);
    let mean = g.task("mean", &small, |i: &usize| *i as f32);
    let out = g.task("norm", (&small, take(&mean)), |i: &usize, m: f32| *i as f32 - m);
    let t = g.try_task("f", (), || Ok(std::fs::read("x")?));
    g.output("tensor", &out);
    g.output("t", &t);
}
