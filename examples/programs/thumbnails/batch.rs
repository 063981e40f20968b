//! All pictures: a run for each, many in flight, and what came of them.

use std::error::Error;
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch::{Executor, Plan, Result, inputs};
use futures::{StreamExt, stream};
use image::RgbImage;
use indicatif::ProgressBar;

use crate::files::thumbnail_path;
use crate::image_ops::Stats;
use crate::summary::Failure;

/// What to do, and with what.
pub(crate) struct Batch<'a> {
    pub(crate) exec: &'a Executor,
    pub(crate) plan: &'a Plan,
    /// Where the pictures lie, and where their thumbnails go.
    pub(crate) dir: PathBuf,
    pub(crate) out: PathBuf,
    /// How many pictures are worked on at a time.
    pub(crate) in_flight: usize,
    /// How many thumbnails are kept for the contact sheet: those of the first pictures.
    pub(crate) kept: usize,
}

/// A picture that has a thumbnail.
pub(crate) struct Done {
    /// Its path below the folder that was read.
    pub(crate) name: PathBuf,
    pub(crate) stats: Stats,
    /// None beyond what is kept.
    pub(crate) thumbnail: Option<RgbImage>,
}

impl Batch<'_> {
    /// Runs the plan for every picture and tells `bar`. Returns what is done and what failed, each in the
    /// order of the pictures.
    pub(crate) async fn run(&self, pictures: &[PathBuf], bar: &ProgressBar) -> (Vec<Done>, Vec<Failure>) {
        let runs = stream::iter(pictures.iter().enumerate()).map(async |(index, path)| (index, self.run_one(index, path).await));
        // A run starts when it is polled, so this is what bounds how many are in flight.
        let mut runs = runs.buffer_unordered(self.in_flight);
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        while let Some((index, outcome)) = runs.next().await {
            match outcome {
                Ok(picture) => done.push((index, picture)),
                Err(error) => failures.push((index, Failure { path: pictures[index].clone(), reason: reason(&error) })),
            }
            bar.inc(1);
        }
        (in_order(done), in_order(failures))
    }

    async fn run_one(&self, index: usize, path: &Path) -> Result<Done> {
        let target = thumbnail_path(&self.out, &self.dir, path);
        let mut outputs = self.exec.run(self.plan, inputs! { "source" => path.to_owned(), "target" => target }).await?;
        // The third output, the tensor, is where a network would go on. Here it is dropped with the outputs.
        let (stats, thumbnail) = (outputs.take("stats")?, outputs.take("thumbnail")?);
        let thumbnail = (index < self.kept).then(|| Arc::unwrap_or_clone(thumbnail));
        Ok(Done { name: path.strip_prefix(&self.dir).unwrap_or(path).to_owned(), stats: *stats, thumbnail })
    }
}

fn in_order<T>(mut items: Vec<(usize, T)>) -> Vec<T> {
    items.sort_by_key(|(index, _)| *index);
    items.into_iter().map(|(_, item)| item).collect()
}

/// Returns an error and its causes on one line.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
