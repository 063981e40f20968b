//! The result of a GPU's self-test: which ways to tell the host of the end of work succeed.

use std::fmt;
use std::time::Duration;

use super::Completion;
use super::lane::Signal;
use crate::error::Error;

/// The outcome of each [`Completion`] on a GPU; made by [`self_test`](super::self_test). `{}` prints a table
/// in Markdown.
///
/// ```no_run
/// let test = anabranch::cuda::self_test(0)?;
/// println!("{test}");                                             // a table with a row for each trial
/// println!("an executor takes {:?}", test.completion());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SelfTest {
    device: String,
    trials: Vec<Trial>,
}

/// One way to tell the host of the end of work, and the outcome of its trial.
///
/// ```no_run
/// for trial in anabranch::cuda::self_test(0)?.trials() {
///     println!("{:?}: {:?}", trial.completion(), trial.outcome());
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    signal: Signal,
    outcome: TrialOutcome,
}

/// The outcome of trying one way to tell the host of the end of work.
///
/// ```no_run
/// use anabranch::cuda::{TrialOutcome, self_test};
///
/// for trial in self_test(0)?.trials() {
///     match trial.outcome() {
///         TrialOutcome::Works(after) => println!("{:?} takes {after:?}", trial.completion()),
///         other => println!("{:?} is no choice: {other:?}", trial.completion()),
///     }
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TrialOutcome {
    /// The end reached the host without another call, in this time after the call.
    Works(Duration),
    /// The device reports that it lacks this.
    Unsupported,
    /// The driver returned an error, at the call or later.
    Failed(Error),
    /// The call succeeded. The end reached the host only after a call that waits for the stream.
    AfterSync,
    /// The call succeeded, and the end never reached the host.
    Never,
    /// The stream did not come to its end: the device hangs, or other work keeps it busy.
    Unfinished,
}

impl SelfTest {
    pub(super) fn new(device: String, trials: Vec<Trial>) -> Self {
        Self { device, trials }
    }

    /// Returns the trials, in the order in which an executor prefers them. [`Completion::Lane`] has two: one
    /// for a number of 64 bits, one for 32.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Returns the completion that an executor takes by default, or None if none works.
    pub fn completion(&self) -> Option<Completion> {
        self.trials.iter().find(|trial| trial.works()).map(Trial::completion)
    }

    /// Returns true if an executor can be built with this completion.
    pub fn works(&self, completion: Completion) -> bool {
        self.trials.iter().any(|trial| trial.works() && trial.completion() == completion)
    }

    /// Returns the reason why no executor can be built with this completion, or with any.
    pub(super) fn fault(&self, asked: Option<Completion>) -> String {
        let tried = self.trials.iter().filter(|trial| asked.is_none_or(|asked| trial.completion() == asked));
        let tried: Vec<String> = tried.map(|trial| format!("{}: {}", trial.name(), trial.outcome)).collect();
        let all = [Completion::Lane, Completion::Event, Completion::HostFunction];
        let working: Vec<String> =
            all.into_iter().filter(|&all| self.works(all)).map(|works| format!("Completion::{works:?}")).collect();
        let asked = asked.map_or("in any way".into(), |asked| format!("by Completion::{asked:?}"));
        let instead = if working.is_empty() {
            "No other way works. Update the driver".to_owned()
        } else {
            format!("These work: {}. Ask for one of them, or leave the choice to the executor", working.join(", "))
        };
        format!("does not tell the host {asked} that work is done ({}). {instead}", tried.join("; "))
    }
}

impl Trial {
    pub(super) fn new(signal: Signal, outcome: TrialOutcome) -> Self {
        Self { signal, outcome }
    }

    /// Returns the completion that was tried.
    pub fn completion(&self) -> Completion {
        self.signal.completion()
    }

    /// Returns the signal that was tried, in a few words.
    pub fn name(&self) -> &'static str {
        match self.signal {
            Signal::Word64 => "a word of 64 bits",
            Signal::Word32 => "a word of 32 bits",
            Signal::Event => "an event",
            Signal::HostFunction => "a host function",
        }
    }

    /// Returns the outcome of the trial.
    pub fn outcome(&self) -> &TrialOutcome {
        &self.outcome
    }

    fn works(&self) -> bool {
        self.outcome.works()
    }
}

impl TrialOutcome {
    /// Returns true if the end reached the host without another call.
    pub fn works(&self) -> bool {
        matches!(self, Self::Works(_))
    }
}

impl Signal {
    pub(super) fn completion(self) -> Completion {
        match self {
            Self::Word64 | Self::Word32 => Completion::Lane,
            Self::Event => Completion::Event,
            Self::HostFunction => Completion::HostFunction,
        }
    }
}

impl fmt::Display for TrialOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works(after) => write!(f, "works, {:.1} µs after the call", after.as_secs_f64() * 1e6),
            Self::Unsupported => f.write_str("the device does not support it"),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::AfterSync => f.write_str("the call succeeded, and the end came only after a wait for the stream"),
            Self::Never => f.write_str("the call succeeded, and the end never came"),
            Self::Unfinished => f.write_str("the stream did not come to its end"),
        }
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.trials.iter().map(|trial| {
            let is_default = self.trials.iter().find(|trial| trial.works()).is_some_and(|first| first.signal == trial.signal);
            let name = format!("{}{}", trial.name(), if is_default { ", the default" } else { "" });
            [format!("{:?}", trial.completion()), name, trial.outcome.to_string()]
        });
        let head = [self.device.clone(), "what tells the host".into(), "outcome".into()];
        let rows: Vec<[String; 3]> = std::iter::once(head).chain(rows).collect();
        let widths = [0, 1, 2].map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        for (number, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("| {cell:<width$} "));
            writeln!(f, "{}|", cells.collect::<String>())?;
            if number == 0 {
                writeln!(f, "{}|", widths.map(|width| format!("|{}", "-".repeat(width + 2))).concat())?;
            }
        }
        Ok(())
    }
}
