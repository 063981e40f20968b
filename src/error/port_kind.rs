//! The kinds of ports, for messages.

use std::fmt;

/// The kind of a port. In a pipeline, an input may be a state or a feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortKind {
    Input,
    State,
    Feedback,
    Output,
}

/// The word for the kind in messages.
impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::State => "state",
            Self::Feedback => "feedback",
            Self::Output => "output",
        })
    }
}
