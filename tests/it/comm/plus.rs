//! An operator that has the name of another one.

use anabranch::Name;
use anabranch::scope::{Operator, Sum};

/// Adds, under the name of the built-in sum.
pub(crate) struct Plus;

impl Operator<f64> for Plus {
    fn name(&self) -> Name {
        Operator::<f64>::name(&Sum)
    }
    fn identity(&self) -> f64 {
        0.0
    }
    fn combine(&self, before: f64, behind: f64) -> f64 {
        before + behind
    }
}
