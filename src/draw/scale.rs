//! The axis: from times, or steps, to pixels.

use std::fmt::Write;

use super::time_unit::TimeUnit;

/// What an axis counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Axis {
    /// Microseconds.
    #[default]
    Time,
    /// Steps, which are numbered from 0 on. A bar in step 2 is from 2 to 3.
    Steps,
}

/// From a range of the axis to pixels.
#[derive(Clone)]
pub(super) struct Scale {
    pub(super) axis: Axis,
    pub(super) left: f64,
    pub(super) width: f64,
    pub(super) from: f64,
    pub(super) until: f64,
}

impl Scale {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    /// Returns the place of a time, which is within the range.
    pub(super) fn x(&self, at: f64) -> f64 {
        let length = (self.until - self.from).max(f64::MIN_POSITIVE);
        self.left + (at.clamp(self.from, self.until.max(self.from)) - self.from) / length * self.width
    }

    /// Draws lines through the rows, from `top` to `bottom`, and what they mean below.
    pub(super) fn draw(&self, top: f64, bottom: f64, out: &mut String) {
        let step = match self.axis {
            Axis::Time => self.tick(),
            Axis::Steps => self.tick().max(1.0),
        };
        let (first, last) = ((self.from / step - 1e-9).ceil() as u64, (self.until / step + 1e-9).floor() as u64);
        let unit = TimeUnit::of(self.until);
        for tick in first..=last {
            let at = tick as f64 * step;
            let (x, middle) = (self.x(at), self.x(at + if self.axis == Axis::Steps { 0.5 } else { 0.0 }));
            let text = match self.axis {
                Axis::Time => unit.text(at),
                Axis::Steps if at >= self.until => break,
                Axis::Steps => format!("{at}"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {top:.1}V{:.1}\" stroke=\"#ccd3db\" stroke-width=\"0.7\"/>\
                 <text class=\"muted middle\" x=\"{middle:.1}\" y=\"{:.1}\">{text}</text>",
                bottom + 4.0,
                bottom + 17.0,
            );
        }
    }

    /// Returns a round distance between two ticks, of about ten.
    fn tick(&self) -> f64 {
        let rough = (self.until - self.from).max(f64::MIN_POSITIVE) / (self.width / 110.0).clamp(2.0, 14.0);
        let power = 10f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&step| step >= rough).unwrap_or(10.0 * power)
    }
}
