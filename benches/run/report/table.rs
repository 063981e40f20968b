//! A Markdown table whose columns are padded, so that it reads well as text too.

/// Rows of cells under a head; numbers are right-aligned, the first column is not.
pub(crate) struct Table {
    /// The head first.
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![head.into_iter().map(Into::into).collect()] }
    }

    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "one cell per column");
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    pub(crate) fn markdown(&self) -> String {
        let columns = 0..self.rows[0].len();
        let widths: Vec<usize> = columns.map(|column| self.width(column)).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row, &widths)).collect();
        let rules = widths.iter().enumerate().map(|(column, &width)| match column {
            0 => format!("|{}", "-".repeat(width + 2)),
            _ => format!("|{}:", "-".repeat(width + 1)),
        });
        lines.insert(1, rules.collect::<String>() + "|");
        lines.join("\n")
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, &width))| match column {
        0 => format!("| {cell:<width$} "),
        _ => format!("| {cell:>width$} "),
    });
    padded.collect::<String>() + "|"
}

/// Returns the middle of `figures`, or the mean of the two in the middle.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}
