//! Units of time in texts and pictures.

use std::fmt;

/// A unit of time, for texts in which all times have the same.
///
/// # Examples
/// ```
/// use anabranch::plan::TimeUnit;
///
/// let unit = TimeUnit::of(2_500.0);
/// assert_eq!((unit.text(2_500.0), unit.text(40.0)), ("2.5 ms".into(), "0.04 ms".into()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimeUnit {
    /// µs
    Microseconds,
    /// ms
    Milliseconds,
    /// s
    Seconds,
}

impl TimeUnit {
    /// Returns the largest unit that is not longer than a time in microseconds, or else microseconds.
    pub fn of(us: f64) -> Self {
        let larger = [Self::Seconds, Self::Milliseconds].into_iter().find(|unit| us >= unit.us());
        larger.unwrap_or(Self::Microseconds)
    }

    /// Returns how many microseconds it has.
    pub fn us(self) -> f64 {
        match self {
            Self::Microseconds => 1.0,
            Self::Milliseconds => 1e3,
            Self::Seconds => 1e6,
        }
    }

    /// Returns a time, given in microseconds, in this unit: with two digits behind the point, or with the
    /// first two that are not 0 if it is short.
    pub fn text(self, us: f64) -> String {
        let value = us / self.us();
        if value >= 1e9 {
            return format!("{value:.2e} {self}");
        }
        let zeros = if value > 0.0 { -value.log10().floor() } else { 0.0 };
        let text = format!("{value:.*}", (zeros + 1.0).clamp(2.0, 9.0) as usize);
        format!("{} {self}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Its symbol.
impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        })
    }
}

/// Returns a time, given in microseconds, in the unit that fits it.
pub(crate) fn time(us: f64) -> String {
    TimeUnit::of(us).text(us)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn short_times_keep_two_digits_and_long_ones_stay_short() {
        // Seen to fail with two digits behind the point always, and without the exponent.
        let times = [0.0, 0.0004, 0.25, 1.0, 16.666_666, 999.5, 40_000.0, 1_500_000.0, 3e18];
        let texts = ["0 µs", "0.0004 µs", "0.25 µs", "1 µs", "16.67 µs", "999.5 µs", "40 ms", "1.5 s", "3.00e12 s"];
        assert_eq!(times.map(time), texts);
    }
}
