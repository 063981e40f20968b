//! Whether a GPU still works. The driver's codes become errors here; a fatal one loses the device, and every
//! later call is refused.

use super::driver::{Driver, SUCCESS};
use crate::device::queue::Fault;
use crate::error::{Error, Kind, Result};
use crate::sync::OnceLock;

pub(super) struct Status {
    pub(super) driver: &'static Driver,
    ordinal: u32,
    lost: OnceLock<Fault>,
}

impl Status {
    pub(super) fn new(driver: &'static Driver, ordinal: u32) -> Self {
        Self { driver, ordinal, lost: OnceLock::new() }
    }

    /// Returns the device's name in errors.
    pub(super) fn name(&self) -> String {
        format!("CUDA device {}", self.ordinal)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns an error once the device is lost.
    pub(super) fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |fault| Err(self.lost_error(fault)))
    }

    /// Turns the driver's code into an error; a fatal one loses the device.
    pub(super) fn check(&self, code: u32) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(&self.driver.fault(code))) }
    }

    /// Passes a result on. A fatal error of the driver loses the device, and the error says so.
    pub(super) fn seen<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.driver_code().map(|code| self.check(code)) {
            Some(Err(seen)) => seen,
            _ => error,
        })
    }

    /// Returns the error for a fault; a fatal one loses the device.
    pub(super) fn error(&self, fault: &Fault) -> Error {
        if !fault.is_fatal {
            return Kind::Driver { code: fault.code, name: fault.name.clone() }.into();
        }
        let _ = self.lost.set(fault.clone());
        self.lost_error(fault)
    }

    fn lost_error(&self, fault: &Fault) -> Error {
        Kind::DeviceLost { device: self.name(), code: fault.code, name: fault.name.clone() }.into()
    }
}
