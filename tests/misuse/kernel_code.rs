use anabranch::device::{In, Kernel, Out};

fn main() {
    let _ptx = Kernel::<(In<f32>, Out<f32>)>::ptx("copy", ".visible .entry copy(.param .u64 x, .param .u64 y) { ret; }");
    let _cuda_c = Kernel::<(u32,)>::cuda_c("nothing", "extern \"C\" __global__ void nothing(unsigned n) {}");
}
