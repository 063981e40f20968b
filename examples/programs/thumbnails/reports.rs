//! What is written and counted once all pictures are done: the contact sheet, the table of colours, the time
//! of each node.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anabranch::BoxError;
use anabranch::exec::WorkSpan;
use image::RgbImage;

use crate::batch::Done;
use crate::files::write;
use crate::image_ops::{contact_sheet, encode_jpeg};
use crate::summary::NodeTime;

/// A sheet holds as many thumbnails as fit into this many pixels (300 MB): 1,993 of the usual size.
const SHEET_PIXELS_MAX: u64 = 100_000_000;
const SHEET_QUALITY: u8 = 90;

/// Returns how many thumbnails, of at most `side` by `side` pixels, one contact sheet holds.
pub(crate) fn sheet_len(side: u32) -> usize {
    (SHEET_PIXELS_MAX / u64::from(side).pow(2)).max(1) as usize
}

/// Writes the timeline and, if there are pictures, their colours and a contact sheet. Returns a line that
/// says so.
///
/// # Errors
/// When one of the files cannot be written.
pub(crate) async fn write_reports(out: &Path, mut done: Vec<Done>, timeline: &str) -> Result<String, BoxError> {
    write(&out.join("timeline.svg"), timeline.as_bytes()).await?;
    if done.is_empty() {
        return Ok(format!("there are no thumbnails, but there is timeline.svg in {}", out.display()));
    }
    write(&out.join("colours.csv"), colour_table(&done).as_bytes()).await?;

    let kept = done.iter_mut().filter_map(|done| Some((done.name.display().to_string(), done.thumbnail.take()?)));
    let thumbnails: Vec<(String, RgbImage)> = kept.collect();
    let jpeg = encode_jpeg(&contact_sheet(&thumbnails), SHEET_QUALITY)?;
    write(&out.join("contact-sheet.jpg"), &jpeg).await?;
    let first = if thumbnails.len() < done.len() { format!(" (the first {})", thumbnails.len()) } else { String::new() };
    Ok(format!("thumbnails, contact-sheet.jpg{first}, colours.csv and timeline.svg are in {}", out.display()))
}

/// Returns a table of every picture's colours, as comma-separated values.
fn colour_table(done: &[Done]) -> String {
    let mut table = "picture,luminance,red,green,blue,red_std_dev,green_std_dev,blue_std_dev\n".to_owned();
    for Done { name, stats, .. } in done {
        let [r, g, b] = stats.mean;
        let [dr, dg, db] = stats.std_dev;
        let name = name.display().to_string().replace('"', "\"\"");
        let luminance = stats.luminance;
        writeln!(table, "\"{name}\",{luminance:.4},{r:.4},{g:.4},{b:.4},{dr:.4},{dg:.4},{db:.4}")
            .expect("a String takes everything");
    }
    table
}

/// Adds up the time of each node over all runs.
pub(crate) fn node_times(spans: &[WorkSpan]) -> Vec<NodeTime> {
    let mut times = BTreeMap::new();
    for span in spans {
        let (total_us, count) = times.entry(&span.work.name).or_insert((0.0, 0));
        *total_us += (span.end - span.start).as_secs_f64() * 1e6;
        *count += 1;
    }
    times.into_iter().map(|(name, (total_us, count))| NodeTime { name: name.to_string(), total_us, count }).collect()
}
