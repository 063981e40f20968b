//! Names the library `libnccl.so.2`, so that code that opens that name later finds the library that the
//! client has loaded by its path.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
    }
}
