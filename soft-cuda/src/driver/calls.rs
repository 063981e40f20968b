//! The functions that the driver exports, the number of calls of each, and the calls that will fail.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock;
use crate::code::Code;

macro_rules! functions {
    ($($name:ident)*) => {
        /// An exported function.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "spelt as CUDA spells them")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Api { $($name),* }

        /// The names of the functions, by number.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        const ALL: &[Api] = &[$(Api::$name),*];
    };
}

functions! {
    cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString
    cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetAttribute cuDeviceTotalMem_v2 cuDeviceGetUuid cuDeviceGetUuid_v2
    cuDeviceCanAccessPeer cuDeviceGetDefaultMemPool
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
    cuCtxSetCurrent cuCtxGetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxSynchronize cuCtxEnablePeerAccess
    cuCtxGetStreamPriorityRange
    cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamQuery cuStreamSynchronize cuStreamWaitEvent
    cuLaunchHostFunc cuStreamWriteValue32_v2 cuStreamWriteValue64_v2
    cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
    cuEventElapsedTime cuEventElapsedTime_v2
    cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemFreeAsync cuMemPoolSetAttribute cuMemPoolTrimTo cuMemGetInfo_v2
    cuMemHostAlloc cuMemAllocHost_v2 cuMemFreeHost cuMemHostGetDevicePointer_v2
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeerAsync cuMemcpyAsync
    cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8Async cuMemsetD32Async
    cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction cuFuncGetAttribute cuFuncSetAttribute
    cuLaunchKernel
    cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing
    cuGraphCreate cuGraphDestroy cuGraphAddKernelNode_v2 cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddEmptyNode
    cuGraphAddHostNode
    cuGraphInstantiateWithFlags cuGraphExecKernelNodeSetParams_v2 cuGraphExecMemcpyNodeSetParams
    cuGraphExecMemsetNodeSetParams cuGraphExecUpdate_v2 cuGraphUpload cuGraphLaunch cuGraphExecDestroy
}

impl Api {
    pub(crate) fn named(name: &str) -> Option<Api> {
        NAMES.iter().position(|&known| known == name).map(|at| ALL[at])
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns true if the call releases something. A dead context refuses that, too, but the object is gone.
    pub(crate) fn gives_back(self) -> bool {
        use Api::*;
        matches!(
            self,
            cuStreamDestroy_v2
                | cuEventDestroy_v2
                | cuMemFree_v2
                | cuMemFreeAsync
                | cuMemFreeHost
                | cuModuleUnload
                | cuGraphDestroy
                | cuGraphExecDestroy
        )
    }
}

struct Rule {
    api: Api,
    left: u64,
    code: Code,
}

/// The calls that concern one device, or those that concern the process.
pub(crate) struct Calls {
    counts: [AtomicU64; NAMES.len()],
    /// Whether a failure is planned. If not, calls need not take the lock.
    is_planned: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

impl Calls {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; NAMES.len()],
            is_planned: AtomicBool::new(false),
            rules: Mutex::new(Vec::new()),
        }
    }

    /// Counts a call. Returns the code if it must fail.
    pub(crate) fn count(&self, api: Api) -> Option<Code> {
        // ORDERING: Relaxed: a statistic that guards no other data.
        self.counts[api as usize].fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed: a plan applies only to calls that are ordered after it, and those see the store.
        if !self.is_planned.load(Ordering::Relaxed) {
            return None;
        }
        let mut failure = None;
        lock(&self.rules).retain_mut(|rule| {
            if rule.api != api {
                return true;
            }
            rule.left -= 1;
            if rule.left == 0 {
                failure = Some(rule.code);
            }
            rule.left > 0
        });
        failure
    }

    pub(crate) fn fail(&self, api: Api, nth: u64, code: Code) {
        lock(&self.rules).push(Rule { api, left: nth.max(1), code });
        // ORDERING: Relaxed: the plan applies only to calls that are ordered after it. The lock guards the
        // rules.
        self.is_planned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn clear_faults(&self) {
        lock(&self.rules).clear();
        // ORDERING: Relaxed: the plan applies only to calls that are ordered after it. The lock guards the
        // rules.
        self.is_planned.store(false, Ordering::Relaxed);
    }

    pub(crate) fn clear_counts(&self) {
        // ORDERING: Relaxed: a statistic that guards no other data.
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Visits the functions that were called.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&'static str, u64)) {
        for (name, count) in NAMES.iter().zip(&self.counts) {
            // ORDERING: Relaxed: a statistic that guards no other data.
            match count.load(Ordering::Relaxed) {
                0 => {}
                count => visit(name, count),
            }
        }
    }
}
