//! The losses as a picture.

use std::path::Path;

use anabranch::BoxError;
use plotters::prelude::*;

use super::mean;

/// Draws the loss of each batch, and the mean of 25.
pub(crate) fn draw(path: &Path, losses: &[f32]) -> Result<(), BoxError> {
    const INK: RGBColor = RGBColor(38, 50, 56);
    const PALE: RGBColor = RGBColor(176, 196, 214);
    const LINE: RGBColor = RGBColor(25, 103, 182);
    let root = SVGBackend::new(path, (880, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let highest = losses.iter().copied().fold(0.0, f32::max);
    let mut chart = ChartBuilder::on(&root)
        .caption("Two half moons: the loss of each batch, and the mean of 25", text(22))
        .margin(24)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0..losses.len(), 0.0..highest * 1.05)?;
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(RGBColor(226, 230, 234)).light_line_style(TRANSPARENT).axis_style(INK);
    mesh.label_style(text(14)).x_desc("batch").y_desc("cross-entropy").draw()?;
    chart.draw_series(LineSeries::new(losses.iter().copied().enumerate(), PALE.stroke_width(1)))?;
    let means = losses.windows(25).map(mean).enumerate();
    chart.draw_series(LineSeries::new(means.map(|(batch, mean)| (batch + 24, mean)), LINE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
