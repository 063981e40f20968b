//! Figures as text: a median and its spread, ratios, and whether a budget is kept.

use crate::table::median;

/// The bound of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    AtMost(f64),
    AtLeast(f64),
}

impl Budget {
    /// Returns the budget with its verdict. Without a figure there is no verdict.
    pub(crate) fn verdict(self, figure: Option<f64>) -> String {
        let (sign, limit, is_met) = match self {
            Self::AtMost(limit) => ("≤", limit, figure.map(|figure| figure <= limit)),
            Self::AtLeast(limit) => ("≥", limit, figure.map(|figure| figure >= limit)),
        };
        let verdict = match is_met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        format!("{sign} {limit} {verdict}")
    }
}

pub(crate) fn min(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the median and, in brackets, the smallest.
pub(crate) fn show(figures: &[f64]) -> String {
    let digits = |figure: f64| if figure < 100.0 { 1 } else { 0 };
    let (middle, least) = (median(figures), min(figures));
    format!("{middle:.*} ({least:.*})", digits(middle), digits(least))
}

/// Returns figures in ns as [`show`] does, in µs.
pub(crate) fn show_us(figures_ns: &[f64]) -> String {
    format!("{:.2} ({:.2})", median(figures_ns) / 1e3, min(figures_ns) / 1e3)
}

/// Returns the median of the ratios of each round. None if one of the two was not measured.
pub(crate) fn ratio(above: &[f64], below: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// Returns the ratio of the rounds and, in brackets, that of the smallest figures.
pub(crate) fn show_ratio(above: &[f64], below: &[f64]) -> String {
    ratio(above, below).map_or_else(|| "–".into(), |ratio| format!("{ratio:.2} ({:.2})", min(above) / min(below)))
}
