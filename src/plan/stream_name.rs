//! The names of streams, and of their points. A text is made only when it is printed.

use std::fmt;

use super::StreamKind;
use crate::name::Name;

/// The name of a stream of some programs.
#[derive(Clone, Debug)]
pub(crate) enum StreamName {
    /// The number of a program without a schedule.
    Program(u32),
    Schedule(ScheduleStream),
    /// A stream of a schedule, for one of the places of items in flight.
    Place(u32, ScheduleStream),
    /// The consumer of items.
    Consumer,
    /// A stream of the schedule of a rank.
    Rank(u32, ScheduleStream),
    /// The link of a rank that sends, for the message of a node.
    Link(u32, Name),
    /// The links of all ranks, for the exchange of a node.
    Network(Name),
}

/// A stream as its schedule calls it: `host 0` for a host stream, `stream 0` for a stream of the policy. The
/// name of a stream that is not on device 0 contains its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleStream {
    pub(super) kind: StreamKind,
    /// See [`Schedule::label`](super::Schedule::label).
    pub(super) label: u32,
    /// See [`Schedule::id`](super::Schedule::id).
    pub(super) id: u32,
}

impl StreamName {
    /// Returns the name of the stream.
    pub(crate) fn stream(&self) -> String {
        match self {
            Self::Program(number) => format!("stream {number}"),
            Self::Schedule(stream) => stream.to_string(),
            Self::Place(place, stream) => format!("place {place} {stream}"),
            Self::Consumer => "consumer".into(),
            Self::Rank(rank, stream) => format!("rank {rank} {stream}"),
            Self::Link(rank, _) => format!("link of rank {rank}"),
            Self::Network(_) => "network".into(),
        }
    }

    /// Returns the name of its points.
    pub(crate) fn points(&self) -> String {
        match self {
            Self::Program(number) => number.to_string(),
            Self::Schedule(stream) if stream.kind != StreamKind::Host => stream.label.to_string(),
            Self::Schedule(_) | Self::Place(..) | Self::Consumer => self.stream(),
            Self::Rank(rank, stream) => format!("{rank}.{}", stream.id),
            Self::Link(_, node) | Self::Network(node) => node.to_string(),
        }
    }
}

impl fmt::Display for ScheduleStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StreamKind::Device(0) => write!(f, "stream {}", self.label),
            StreamKind::Device(device) => write!(f, "stream {} on device {device}", self.label),
            StreamKind::Host => write!(f, "host {}", self.label),
        }
    }
}
