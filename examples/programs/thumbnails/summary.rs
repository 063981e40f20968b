//! What is said at the end of a run, from plain numbers: one line of totals, one table of nodes, one line a
//! failure.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The time spent in all runs of one node, over all pictures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeTime {
    /// Name of the node in the graph.
    pub(crate) name: String,
    /// Time from its start to its end, added up, in microseconds.
    pub(crate) total_us: f64,
    /// How many times it ran.
    pub(crate) count: usize,
}

/// A picture that has no thumbnail.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// The file it was read from.
    pub(crate) path: PathBuf,
    /// Why, on one line.
    pub(crate) reason: String,
}

/// All that is known when the last picture is finished.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Pictures that have a thumbnail now.
    pub(crate) done: usize,
    /// Pictures that have none.
    pub(crate) failures: Vec<Failure>,
    /// Time from the first file opened to the last one written.
    pub(crate) wall: Duration,
    /// Streams that carried at least one node.
    pub(crate) streams: usize,
    /// Time of each node, in any order.
    pub(crate) nodes: Vec<NodeTime>,
}

/// Rows of the table: more than the nodes of this example, few enough for a screen.
const ROWS_MAX: usize = 12;

impl Summary {
    /// Prints the totals on standard output and the failures on standard error.
    ///
    /// # Errors
    /// When either is closed.
    pub(crate) fn print(&self) -> io::Result<()> {
        let totals = self.write_totals(&mut io::stdout().lock());
        self.write_failures(&mut io::stderr().lock()).and(totals)
    }

    /// Writes counts, rates and the slowest nodes; ends with a line break.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub(crate) fn write_totals(&self, to: &mut impl Write) -> io::Result<()> {
        let seconds = self.wall.as_secs_f64();
        let rate = self.done as f64 / seconds.max(1e-9);
        let runs: usize = self.nodes.iter().map(|node| node.count).sum();
        writeln!(to, "{} done, {} failed in {seconds:.2} s", images(self.done), self.failures.len())?;
        writeln!(to, "{rate:.1} images/s, {} run on {}", plural(runs, "node"), plural(self.streams, "stream"))?;
        self.write_slowest(to)
    }

    /// Writes one line for each picture that failed: `FAILED path: reason`.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub(crate) fn write_failures(&self, to: &mut impl Write) -> io::Result<()> {
        for Failure { path, reason } in &self.failures {
            writeln!(to, "FAILED {}: {reason}", path.display())?;
        }
        Ok(())
    }

    fn write_slowest(&self, to: &mut impl Write) -> io::Result<()> {
        let mut slowest: Vec<&NodeTime> = self.nodes.iter().filter(|node| node.count > 0).collect();
        if slowest.is_empty() {
            return Ok(());
        }
        slowest.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then_with(|| a.name.cmp(&b.name)));
        let all_us: f64 = slowest.iter().map(|node| node.total_us).sum();
        let shown = &slowest[..slowest.len().min(ROWS_MAX)];
        let title = "slowest nodes";
        let width = shown.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).max(title.len());
        writeln!(to, "\n{title:width$}  {:>6}  {:>9}  {:>9}  share", "runs", "total", "mean")?;
        for NodeTime { name, total_us, count } in shown {
            let (total, mean) = (duration(*total_us), duration(total_us / *count as f64));
            let share = 100.0 * total_us / all_us.max(1e-9);
            writeln!(to, "{name:width$}  {count:>6}  {total:>9}  {mean:>9}  {share:>4.0}%")?;
        }
        let left_out = slowest.len() - shown.len();
        if left_out > 0 {
            writeln!(to, "and {} more", plural(left_out, "node"))?;
        }
        Ok(())
    }
}

fn images(count: usize) -> String {
    plural(count, "image")
}

/// Returns a count with its noun.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns microseconds in the unit that leaves one to four digits before the point.
pub(crate) fn duration(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Summary {
        let node = |name: &str, total_us, count| NodeTime { name: name.to_owned(), total_us, count };
        Summary {
            done: 16,
            failures: vec![Failure { path: "photos/torn.jpg".into(), reason: "cannot decode: unexpected end".into() }],
            wall: Duration::from_millis(250),
            streams: 1,
            nodes: vec![node("resize", 41_000.0, 16), node("decode", 123_456.0, 17), node("upload", 640.0, 16)],
        }
    }

    #[test]
    fn the_totals_are_one_aligned_block() {
        let mut text = Vec::new();
        example().write_totals(&mut text).expect("a vector takes everything");
        let expected = "\
16 images done, 1 failed in 0.25 s
64.0 images/s, 49 nodes run on 1 stream

slowest nodes    runs      total       mean  share
decode             17   123.5 ms     7.3 ms    75%
resize             16    41.0 ms     2.6 ms    25%
upload             16     640 us      40 us     0%
";
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }

    #[test]
    fn a_failure_is_one_line() {
        let mut text = Vec::new();
        example().write_failures(&mut text).expect("a vector takes everything");
        assert_eq!(String::from_utf8_lossy(&text), "FAILED photos/torn.jpg: cannot decode: unexpected end\n");
    }
}
