//! Two uses of one memory without an order between them, as the stream sanitizer reports them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::name::Name;

/// The later of two uses without an order, and the earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Race {
    pub(crate) earlier: Use,
    pub(crate) later: Use,
    /// The node that allocated the memory.
    pub(crate) made_by: Option<Name>,
    /// The size of the memory in bytes, and those that both use.
    pub(crate) size: usize,
    pub(crate) bytes: Range<usize>,
}

/// A declared use of memory: where, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub(crate) site: Arc<Site>,
    pub(crate) how: How,
}

/// A node or an operation, and its stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    pub(crate) node: Name,
    pub(crate) stream: String,
}

/// How memory is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A write, for order: the first.
    Allocates,
    Reads,
    Writes,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocates => "allocates",
            Self::Reads => "reads",
            Self::Writes => "writes",
        })
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { earlier, later, made_by, size, bytes } = self;
        let (before, after) = (&earlier.site.node, &later.site.node);
        let Range { start, end } = bytes;
        write!(f, "a race: '{after}' on {} {} bytes {start}..{end} of a buffer of {size} bytes", later.site.stream, later.how)?;
        if let Some(made_by) = made_by.as_ref().filter(|_| earlier.how != How::Allocates) {
            write!(f, ", allocated by '{made_by}'")?;
        }
        write!(
            f,
            ", and no wait orders that after '{before}' on {}, which {} them: add an edge from '{before}' to '{after}' (`after`), pass the buffer along one, or keep it in a variable that both use",
            earlier.site.stream, earlier.how
        )
    }
}
