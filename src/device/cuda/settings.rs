//! The settings of an executor for one of its GPUs.

use super::Completion;
use super::checked::Checked;

/// How an executor uses a GPU.
pub(crate) struct GpuSettings {
    /// How the host learns of ends; by default the first way that works.
    pub(crate) completion: Option<Completion>,
    pub(crate) has_graphs: bool,
    /// Whether the device notes when it worked on each part. Then there are no graphs.
    pub(crate) takes_times: bool,
    pub(crate) sanitizer: Option<Checked>,
}
