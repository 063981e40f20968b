//! The choice of the device: a GPU where there is one, and otherwise the host. The graph is the same.

use anabranch::exec::ExecutorBuilder;
use anabranch::{BoxError, Executor};
use clap::ValueEnum;

/// Where kernels run. All else runs on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// CUDA device 0 if there is a driver and a device, otherwise the host
    Auto,
    /// The host
    Host,
    /// CUDA device 0, and an error if there is none
    Cuda,
}

impl Device {
    /// Returns an executor with these settings, and a line that says what device it has and why.
    ///
    /// # Errors
    /// If a GPU is asked for and cannot be used, or the operating system refuses to start the threads.
    pub(crate) fn executor(self, settings: impl Fn() -> ExecutorBuilder) -> Result<(Executor, String), BoxError> {
        let gpu = if self == Self::Host { Err("asked for".into()) } else { on_gpu(settings()) };
        let (exec, device) = match (self, gpu) {
            (Self::Cuda, Err(lack)) => return Err(format!("--device cuda: {lack} (--device host)").into()),
            (Self::Cuda, Ok(exec)) => (exec, "CUDA device 0 (asked for)".to_owned()),
            (_, Ok(exec)) => (exec, "CUDA device 0 (found)".to_owned()),
            (_, Err(why)) => (settings().build()?, format!("the host ({why})")),
        };
        Ok((exec, format!("device: {device}")))
    }
}

#[cfg(feature = "cuda")]
fn on_gpu(settings: ExecutorBuilder) -> Result<Executor, BoxError> {
    Ok(settings.cuda(&[0]).build()?)
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_settings: ExecutorBuilder) -> Result<Executor, BoxError> {
    Err("this program was built without CUDA. Add `--features cuda` to the options of cargo".into())
}

#[cfg(all(test, not(feature = "cuda")))]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_cuda_says_how_to_get_it() {
        let error = Device::Cuda.executor(Executor::builder).expect_err("it cannot have a GPU").to_string();
        assert!(error.starts_with("--device cuda: this program was built without CUDA. Add `--features cuda`"), "{error}");
        let (_, said) = Device::Auto.executor(Executor::builder).expect("every machine has a host");
        assert!(said.starts_with("device: the host (this program was built without CUDA"), "{said}");
    }
}
