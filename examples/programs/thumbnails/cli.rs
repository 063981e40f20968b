//! The command line: which folders, how large, and how much at once. Every option has a default that just
//! works.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Parser;

use crate::device::Device;

/// The folder of this program's package, wherever it is started from.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

const EXAMPLES: &str = "\
Examples:
  The photographs that come along (licences in examples/programs/thumbnails/photos/LICENSES.md):
    cargo run --release --example thumbnails

  Your own, smaller and with 8 in flight:
    cargo run --release --example thumbnails -- ~/Pictures /tmp/thumbnails --side 160 --in-flight 8

  On a GPU, which needs NVIDIA's driver and nothing else:
    cargo run --release --features cuda --example thumbnails -- --device cuda";

/// Makes thumbnails, statistics and one contact sheet of every JPEG and PNG in a folder, many pictures at a
/// time.
#[derive(Clone, Debug, Parser)]
#[command(name = "thumbnails", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder to read, with all folders below it [default: the photographs that come along]
    dir: Option<PathBuf>,

    /// Folder to write, made if missing [default: target/thumbnails-out in the repository]
    out: Option<PathBuf>,

    /// Longer side of a thumbnail, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 224, value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub(crate) side: u32,

    /// Pictures worked on at a time; each takes the memory of one decoded picture
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    in_flight: u16,

    /// Threads that compute [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,

    /// Where pictures are resized and normalised
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,

    /// Show no progress bar and no summary; failures are still reported
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl Args {
    /// Returns the folder to read.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| Path::new(PACKAGE).join("thumbnails/photos"))
    }

    /// Returns the folder to write: where `cargo clean` removes it, if none was given.
    pub(crate) fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new(PACKAGE).join("../../target/thumbnails-out"))
    }

    /// Returns how many pictures may be in flight, at least 1.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    /// Returns how many threads compute, at least 1.
    pub(crate) fn workers(&self) -> usize {
        match self.workers {
            Some(workers) => workers.into(),
            None => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_arguments_the_photographs_that_come_along_are_read() {
        let args = Args::parse_from(["thumbnails"]);
        assert!(args.dir().ends_with("examples/programs/thumbnails/photos"));
        assert!(args.out().ends_with("target/thumbnails-out"));
        assert_eq!((args.side, args.in_flight(), args.device, args.quiet), (224, 32, Device::Auto, false));
        assert!(args.workers() >= 1);
    }

    #[test]
    fn the_device_is_one_of_three() {
        let device = |name| Args::try_parse_from(["thumbnails", "--device", name]).map(|args| args.device).ok();
        assert_eq!(
            ["auto", "host", "cuda", "gpu"].map(device),
            [Some(Device::Auto), Some(Device::Host), Some(Device::Cuda), None]
        );
    }

    #[test]
    fn nothing_in_flight_is_refused() {
        assert!(Args::try_parse_from(["thumbnails", "--in-flight", "0"]).is_err());
        assert!(Args::try_parse_from(["thumbnails", "--side", "0"]).is_err());
    }
}
