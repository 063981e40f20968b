//! Why operations do not stream together.

use std::fmt;

use super::outline::{Mode, OpKind, OpName};
use super::part::Part;
use crate::name::Name;

/// Why an operation does not stream with those before it.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Reason, Rule};
///
/// let mut outline = Outline::new();
/// outline.op(Operation::new("fill", [8]));
/// outline.op(Operation::new("add", [4]));
/// let reasons = outline.reasons(Rule::Exact)?;
/// assert!(matches!(reasons[..], [Reason::Batches { counts: [4, 8], .. }]));
/// assert_eq!(reasons[0].to_string(), "'add' has 4 batches, and 'fill' has 8: let both have as many");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A batch needs a later batch of an operation before. Only
    /// [`Rule::InOrder`](super::Rule::InOrder) refuses that.
    Ahead {
        /// Where.
        clash: Clash,
        /// The first batch that needs a later one, and the last one that it needs; None if that was not found
        /// soon.
        first: Option<(u64, u64)>,
        /// By how many batches that is later, at the most.
        lag: u64,
    },
    /// The first batch needs all batches of an operation before, or its last one, or it may need them:
    /// nothing would overlap.
    NeedsLast {
        /// Where.
        clash: Clash,
        /// By how many batches the last one that a batch needs is later, at the most.
        lag: u64,
    },
    /// The number of batches is another.
    Batches {
        /// The operation, and one before.
        op: OpName,
        /// The one before.
        other: OpName,
        /// Their batches.
        counts: [u64; 2],
    },
    /// An operation that is done once needs batches before it, and batches behind it need it.
    AfterOnce {
        /// Where.
        clash: Clash,
    },
    /// Two batches of one operation use the same elements, or may do so, and one of them writes them.
    Interferes {
        /// Where: both sides are of one operation.
        clash: Clash,
    },
    /// More bytes are in flight than there may be.
    Memory {
        /// The operation with which they are too many.
        op: OpName,
        /// What one batch in flight needs.
        bytes: u64,
        /// The bound, or the bytes of the program that does not stream.
        limit: u64,
    },
    /// Operations of this kind do not stream.
    Kind {
        /// The operation.
        op: OpName,
        /// Its kind.
        kind: OpKind,
    },
    /// The partitions are not equal. Only [`Rule::Legate`](super::Rule::Legate) refuses that.
    Partitions {
        /// Where.
        clash: Clash,
    },
    /// A reduction is pending. Only [`Rule::Legate`](super::Rule::Legate) refuses other uses of its store.
    Reduced {
        /// Where.
        clash: Clash,
    },
    /// The launch domains are not equal. Only [`Rule::Legate`](super::Rule::Legate) refuses that.
    Launches {
        /// The operation.
        op: OpName,
        /// One before.
        other: OpName,
    },
}

/// Two uses of a store that must keep their order.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Reason, Rule};
///
/// # let mut outline = Outline::new();
/// # let a = outline.store("a", [64], 8);
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// outline.op(Operation::new("use", [8]).read(a, Part::whole()));
/// let reasons = outline.reasons(Rule::Exact)?;
/// if let Reason::NeedsLast { clash, .. } = &reasons[0] {
///     let uses = "'fill' writes tiles of 8, and 'use' reads the whole store";
///     assert_eq!(clash.to_string(), format!("store 'a': {uses}"));
/// }
/// # assert!(matches!(reasons[0], Reason::NeedsLast { .. }));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clash {
    /// The store.
    pub store: Name,
    /// The use that comes first.
    pub earlier: Side,
    /// The other one.
    pub later: Side,
    /// Whether it was found which batches share elements. Along a diagonal with millions of batches not all
    /// are tried: then some may, and the lag is a bound.
    pub is_exact: bool,
}

/// A use of a store.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Reason, Rule};
///
/// # let mut outline = Outline::new();
/// # let a = outline.store("a", [64], 8);
/// # outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// # outline.op(Operation::new("use", [8]).read(a, Part::whole()));
/// let reasons = outline.reasons(Rule::Exact)?;
/// if let Reason::NeedsLast { clash, .. } = &reasons[0] {
///     assert_eq!(clash.later.op.name, "use");
///     assert!(clash.later.part.is_whole() && !clash.earlier.part.is_whole());
/// }
/// # assert!(matches!(reasons[0], Reason::NeedsLast { .. }));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Side {
    /// The operation.
    pub op: OpName,
    /// What it does.
    pub mode: Mode,
    /// Which elements each batch uses.
    pub part: Part,
}

impl Reason {
    /// Returns the operation that does not stream with those before it.
    pub fn op(&self) -> &OpName {
        match self {
            Self::Ahead { clash, .. }
            | Self::NeedsLast { clash, .. }
            | Self::AfterOnce { clash }
            | Self::Interferes { clash }
            | Self::Partitions { clash }
            | Self::Reduced { clash } => &clash.later.op,
            Self::Batches { op, .. } | Self::Memory { op, .. } | Self::Kind { op, .. } | Self::Launches { op, .. } => op,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.op, self.mode.verb(), self.part)
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store '{}': {}, and {}", self.store, self.earlier, self.later)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead { clash, first, lag } => {
                let (later, earlier) = (&clash.later.op, &clash.earlier.op);
                match first {
                    Some((batch, needs)) => write!(f, "{clash}; batch {batch} of {later} needs batch {needs} of {earlier}"),
                    None if clash.is_exact => write!(f, "{clash}; a batch of {later} needs one of {earlier} that is {lag} later"),
                    None => write!(f, "{clash}; a batch of {later} may need one of {earlier} that is up to {lag} later"),
                }
            }
            Self::NeedsLast { clash, .. } => {
                let (later, earlier) = (&clash.later.op, &clash.earlier.op);
                let needs = if clash.is_exact { "needs" } else { "may need" };
                write!(f, "{clash}; the first batch of {later} that shares elements {needs} {earlier} up to its last batch")
            }
            Self::Batches { op, other, counts: [own, others] } => {
                let plural = if *own == 1 { "" } else { "es" };
                write!(f, "{op} has {own} batch{plural}, and {other} has {others}: let both have as many")
            }
            Self::AfterOnce { clash } => {
                write!(f, "{clash}; {} is done once, after the batches that it needs", clash.earlier.op)
            }
            Self::Interferes { clash } => {
                let using = if clash.is_exact { "use" } else { "may use" };
                write!(f, "{clash}; so two batches of {} {using} the same elements", clash.later.op)
            }
            Self::Memory { op, bytes, limit } => {
                write!(
                    f,
                    "with {op} one batch in flight needs {bytes} bytes, and may use {limit}: use smaller tiles, or allow more"
                )
            }
            Self::Kind { op, kind } => write!(f, "{op} {}", kind.why_not()),
            Self::Partitions { clash } => write!(f, "{clash}; the partitions are not equal"),
            Self::Reduced { clash } => write!(f, "{clash}; the store is being reduced"),
            Self::Launches { op, other } => write!(f, "the launch domains of {op} and {other} are not equal"),
        }
    }
}

impl OpKind {
    fn why_not(self) -> &'static str {
        match self {
            Self::Task | Self::Fill => "does not stream",
            Self::HostRead => "reads a value on the host: it waits for all that is before it, so do it outside",
            Self::Image => "has a partition that data decides: which batches it needs is not known before the run",
            Self::Concurrent => "needs all its batches at once",
        }
    }
}
