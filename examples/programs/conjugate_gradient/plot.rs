//! The residuals as a picture: one line on a logarithmic scale.

use std::path::Path;

use anabranch::BoxError;
use plotters::prelude::*;

const INK: RGBColor = RGBColor(38, 50, 56);
const LINE: RGBColor = RGBColor(25, 103, 182);
const GOAL: RGBColor = RGBColor(200, 70, 50);
const GRID: RGBColor = RGBColor(226, 230, 234);

/// Draws |r| / |b| after each iteration, and the tolerance.
pub(crate) fn draw(path: &Path, title: &str, residuals: &[f64], tolerance: f64) -> Result<(), BoxError> {
    let relative = residuals.iter().map(|residual| residual / residuals[0]);
    let points: Vec<(f64, f64)> = relative.enumerate().map(|(iteration, r)| (iteration as f64, r)).collect();
    let lowest = points.iter().map(|(_, r)| *r).filter(|r| *r > 0.0).fold(tolerance, f64::min);
    let highest = points.iter().map(|(_, r)| *r).fold(1.0, f64::max);
    let last = (residuals.len() - 1).max(1) as f64;

    let root = SVGBackend::new(path, (880, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22).into_font().color(&INK))
        .margin(24)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..last * 1.015, (lowest / 3.0..highest * 3.0).log_scale())?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(("sans-serif", 14).into_font().color(&INK))
        .x_desc("iteration")
        .y_desc("|r| / |b|")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0e}"))
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(0.0, tolerance), (last * 1.015, tolerance)], 6, 4, GOAL.stroke_width(1)))?;
    chart.draw_series(LineSeries::new(points.iter().copied(), LINE.stroke_width(2)))?;
    // So many that they touch hide the line.
    let dots = points.iter().filter(|_| points.len() <= 120);
    chart.draw_series(dots.map(|point| Circle::new(*point, 3, LINE.filled())))?;
    let label = Text::new(
        format!("tolerance {tolerance:.0e}"),
        (last * 0.01, tolerance * 2.2),
        ("sans-serif", 14).into_font().color(&GOAL),
    );
    chart.draw_series([label])?;
    root.present()?;
    Ok(())
}
