//! Which ways to tell the host that work is done reach it on a GPU, and which of them an executor takes.
//!
//! ```sh
//! cargo run --features cuda --example self_test -- 0
//! ```

use std::error::Error;
use std::process::ExitCode;

use anabranch::cuda::self_test;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let ordinal = std::env::args().nth(1).map_or(Ok(0), |ordinal| ordinal.parse())?;
    let test = self_test(ordinal)?;
    print!("{test}");
    Ok(if test.completion().is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
