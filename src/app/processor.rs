//! The processors that a pass may ask for.

use std::fmt;

/// The processor of a pass.
///
/// ```
/// use anabranch::app::Processor;
///
/// assert!(Processor::Gpu.is_device() && !Processor::Cpu.is_device());
/// assert_eq!(Processor::CuDla.to_string(), "CUDLA");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Deserialize)]
pub enum Processor {
    /// A core of the host.
    #[serde(rename = "CPU")]
    Cpu,
    /// A GPU, through CUDA.
    #[serde(rename = "GPU")]
    Gpu,
    /// A deep learning accelerator.
    #[serde(rename = "DLA")]
    Dla,
    /// A programmable vision accelerator.
    #[serde(rename = "PVA")]
    Pva,
    /// A deep learning accelerator, through cuDLA.
    #[serde(rename = "CUDLA")]
    CuDla,
    /// A queue of a GPU, through Vulkan.
    #[serde(rename = "VULKAN_QUEUE")]
    VulkanQueue,
    /// An engine that corrects lens distortion.
    #[serde(rename = "LDC")]
    Ldc,
    /// An engine for two-dimensional images.
    #[serde(rename = "NV2D")]
    Nv2d,
}

impl Processor {
    /// Returns true if a pass on it is submitted by the host.
    pub fn is_device(self) -> bool {
        self != Self::Cpu
    }

    /// Returns the name that the files have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Dla => "DLA",
            Self::Pva => "PVA",
            Self::CuDla => "CUDLA",
            Self::VulkanQueue => "VULKAN_QUEUE",
            Self::Ldc => "LDC",
            Self::Nv2d => "NV2D",
        }
    }

    /// Returns true if a resource of this name, without its number, carries out what this processor is for.
    pub(super) fn is_engine(self, stem: &str) -> bool {
        match self {
            // `dGPU`, `iGPU`.
            Self::Gpu => stem.ends_with("GPU"),
            Self::CuDla => stem == "CUDLA" || stem == "DLA",
            _ => stem == self.name(),
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
