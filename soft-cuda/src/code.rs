//! Return codes of the driver's functions. A code is a number and no closed enum, because a test may request
//! any code.

use std::ffi::CStr;
use std::fmt;

/// A return code of the driver. Any number is valid; the codes that the driver itself uses have names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Code(pub u32);

/// The result of a driver function inside the driver.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $cuda:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code($number);)*

            /// Returns the CUDA name of the code, if the driver uses the code.
            pub(crate) fn name(self) -> Option<&'static CStr> {
                match self.0 {
                    0 => Some(c"CUDA_SUCCESS"),
                    $($number => Some($cuda),)*
                    _ => None,
                }
            }

            /// Returns the meaning of the code, if the driver uses the code.
            pub(crate) fn text(self) -> Option<&'static CStr> {
                match self.0 {
                    0 => Some(c"no error"),
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// An argument is out of its range.
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    /// No memory is left.
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    /// `cuInit` was not called.
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    /// The kernel's name is in the module, but no kernel is registered under it.
    INVALID_DEVICE_FUNCTION = 98, c"CUDA_ERROR_INVALID_DEVICE_FUNCTION", c"invalid device function";
    /// The machine has no device.
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    /// There is no device with that number.
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    /// The driver cannot load the image.
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid";
    /// No context is current, or the named context is not live.
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    /// The text is not PTX.
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed";
    /// A memory error that the hardware could not correct. Fatal.
    UNCORRECTABLE_CONTAINED = 226, c"CUDA_ERROR_CONTAINED", c"Invalid access of peer GPU memory over nvlink or a hardware error";
    /// The stream, event or other object is not live.
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    /// There is nothing of that name.
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    /// Work is still pending.
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"device not ready";
    /// An access outside of all live allocations. Fatal.
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered";
    /// A kernel ran for too long. Fatal.
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated";
    /// The context was released.
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed";
    /// A kernel's assertion failed. Fatal.
    ASSERT = 710, c"CUDA_ERROR_ASSERT", c"device-side assert triggered";
    /// A kernel failed. Fatal.
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure";
    /// Not permitted here, for instance in a host function.
    NOT_PERMITTED = 800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted";
    /// The device does not support the operation.
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    /// Not allowed while the stream is captured.
    CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing";
    /// An earlier call invalidated the capture.
    CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture";
    /// The call would have merged two captures.
    CAPTURE_MERGE = 902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"operation would result in a merge of separate capture sequences";
    /// The capture did not begin on this stream.
    CAPTURE_UNMATCHED = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not ended in the same stream as it began";
    /// Work of another stream was never joined to the stream on which the capture began.
    CAPTURE_UNJOINED = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work";
    /// A captured stream would have waited for work that is not captured.
    CAPTURE_ISOLATION = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"dependency created on uncaptured work in another stream";
    /// The event was recorded in a capture.
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT", c"operation not permitted on an event last recorded in a capturing stream";
    /// The graph differs too much from the executable graph.
    GRAPH_UPDATE_FAILURE = 910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", c"the graph update was not performed because it included changes which violated constraints";
    /// Any other error.
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"unknown error";
}

impl Code {
    /// Returns true for a fatal code: once an operation has failed with it, the context returns only this
    /// code.
    pub fn is_fatal(self) -> bool {
        matches!(self.0, 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({})", self.0, name.to_string_lossy()),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
