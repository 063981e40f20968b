//! What a scope does, without closures: its stores, and its operations in order.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::part::Part;
use crate::error::{Kind, Result};
use crate::name::Name;

/// The most axes of a store or a launch.
pub const AXES_MAX: usize = 8;
/// The most stores, and the most operations, of one scope.
pub const OPS_MAX: usize = 1 << 12;
/// The most elements of a store, and the most batches of an operation.
pub const VOLUME_MAX: u64 = 1 << 40;

/// The stores and the operations of a scope, as the rules see them.
///
/// An element that is read before an operation has written it, or reduced into it, comes from outside. Then
/// its store is there before the first operation, and whole in memory until the last one that uses it.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Rule};
///
/// let mut outline = Outline::new();
/// let (a, b) = (outline.store("a", [64], 8), outline.store("b", [64], 8));
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// let halo = Part::tiles([8]).halo([1], [1]);
/// outline.op(Operation::new("blur", [8]).read(a, halo).write(b, Part::tiles([8])));
/// let streamed = outline.stream(Rule::Exact)?;
/// assert_eq!((streamed.groups().len(), streamed.groups()[0].skews()), (1, &[0, 1][..]));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Outline {
    pub(super) name: Option<Name>,
    pub(super) stores: Vec<StoreShape>,
    pub(super) ops: Vec<Operation>,
    /// How many operations have each name.
    pub(super) named: HashMap<Name, u32>,
}

/// A store of an [`Outline`].
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part};
///
/// let mut outline = Outline::new();
/// let a = outline.store("a", [64], 8);
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// assert_eq!(outline.store_name(a), "a");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreId(pub(super) u32);

/// An operation of an [`Outline`].
///
/// ```
/// use anabranch::tiles::{Operation, Outline};
///
/// let mut outline = Outline::new();
/// outline.op(Operation::new("fill", [8]));
/// let add = outline.op(Operation::new("add", [8]));
/// assert_eq!(add.index(), 1);
/// assert_eq!(outline.name_of(add), "add");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub(super) u32);

impl StoreId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl OpId {
    /// Returns its place among the operations.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation in a message. If others have its name, it shows its place among the operations, too:
/// `'inc'`, or `'inc' (op 3)`.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Rule};
///
/// let mut outline = Outline::new();
/// outline.op(Operation::new("inc", [8]));
/// outline.op(Operation::new("inc", [4]));
/// let reasons = outline.reasons(Rule::Exact)?;
/// assert_eq!(reasons[0].op().name, "inc");
/// assert_eq!(reasons[0].op().to_string(), "'inc' (op 1)");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpName {
    /// The operation.
    pub id: OpId,
    /// Its name.
    pub name: Name,
    /// Whether no other operation has this name.
    pub is_unique: bool,
}

impl OpName {
    /// Returns the name without quotes.
    pub(super) fn unquoted(&self) -> String {
        format!("{}{}", self.name, self.place())
    }

    fn place(&self) -> String {
        if self.is_unique { String::new() } else { format!(" (op {})", self.id.index()) }
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'{}", self.name, self.place())
    }
}

/// An array that is known by its shape.
#[derive(Clone, Debug)]
pub(super) struct StoreShape {
    pub(super) name: Name,
    pub(super) extents: Vec<u64>,
    pub(super) element_bytes: u64,
    pub(super) is_kept: bool,
}

impl StoreShape {
    pub(super) fn bytes(&self) -> u64 {
        self.extents.iter().product::<u64>().saturating_mul(self.element_bytes)
    }
}

/// What an operation does with a store.
///
/// ```
/// use anabranch::tiles::{Mode, Operation, Outline, Part, Reason, Rule};
///
/// # let mut outline = Outline::new();
/// # let a = outline.store("a", [64], 8);
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// outline.op(Operation::new("use", [8]).read(a, Part::whole()));
/// let reasons = outline.reasons(Rule::Exact)?;
/// let Reason::NeedsLast { clash, .. } = &reasons[0] else { panic!("another reason: {}", reasons[0]) };
/// assert_eq!((&clash.earlier.mode, &clash.later.mode), (&Mode::Write, &Mode::Read));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// It reads elements.
    Read,
    /// It writes elements.
    Write,
    /// It adds to elements, by the operator of this name: batches in any order give the same.
    Reduce(Name),
}

/// A kind of operation.
///
/// ```
/// use anabranch::tiles::{OpKind, Operation, Outline, Part, Reason, Rule};
///
/// # let mut outline = Outline::new();
/// # let sum = outline.store("sum", [1], 8);
/// outline.op(Operation::once("zero").kind(OpKind::Fill).write(sum, Part::whole()));
/// outline.op(Operation::once("print").kind(OpKind::HostRead).read(sum, Part::whole()));
/// let reasons = outline.reasons(Rule::Exact)?;
/// assert!(matches!(reasons[..], [Reason::Kind { kind: OpKind::HostRead, .. }]));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OpKind {
    /// A function for each batch.
    Task,
    /// The system's own fill with a constant.
    Fill,
    /// The host reads a value between operations.
    HostRead,
    /// A partition that data decides: which elements a batch uses is not known.
    Image,
    /// All batches run at once, and talk to each other.
    Concurrent,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Access {
    pub(super) store: StoreId,
    pub(super) mode: Mode,
    pub(super) part: Part,
}

/// An operation: its batches, and what each of them does with stores.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part};
///
/// let mut outline = Outline::new();
/// let (a, sum) = (outline.store("a", [64, 1024], 8), outline.store("sum", [1], 8));
/// let add = Operation::new("add", [4, 16]).read(a, Part::tiles([16, 64])).reduce(sum, Part::whole(), "+");
/// assert_eq!(add.batches(), 64);
/// outline.op(add);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub(super) name: Name,
    pub(super) kind: OpKind,
    /// None: it is not launched over a domain. Then it has one batch.
    pub(super) launch: Option<Vec<u64>>,
    pub(super) accesses: Vec<Access>,
}

impl Operation {
    /// Returns an operation with a batch for each point of a launch, numbered in row-major order.
    pub fn new(name: impl Into<Name>, launch: impl Into<Vec<u64>>) -> Self {
        Self { name: name.into(), kind: OpKind::Task, launch: Some(launch.into()), accesses: Vec::new() }
    }

    /// Returns an operation that is done once.
    pub fn once(name: impl Into<Name>) -> Self {
        Self { name: name.into(), kind: OpKind::Task, launch: None, accesses: Vec::new() }
    }

    /// Sets the kind; the default is [`OpKind::Task`].
    pub fn kind(self, kind: OpKind) -> Self {
        Self { kind, ..self }
    }

    /// Lets each batch read this part of a store.
    pub fn read(self, store: StoreId, part: Part) -> Self {
        self.access(store, Mode::Read, part)
    }

    /// Lets each batch write this part of a store.
    pub fn write(self, store: StoreId, part: Part) -> Self {
        self.access(store, Mode::Write, part)
    }

    /// Lets each batch add to this part of a store, by a named operator.
    pub fn reduce(self, store: StoreId, part: Part, operator: impl Into<Name>) -> Self {
        self.access(store, Mode::Reduce(operator.into()), part)
    }

    fn access(mut self, store: StoreId, mode: Mode, part: Part) -> Self {
        self.accesses.push(Access { store, mode, part });
        self
    }

    /// Returns the axes of the launch.
    pub(super) fn axes(&self) -> &[u64] {
        self.launch.as_deref().unwrap_or(&[])
    }

    /// Returns the number of batches.
    pub fn batches(&self) -> u64 {
        self.axes().iter().product()
    }
}

impl Outline {
    /// Returns an outline without stores and operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns its name: that of a case in a file.
    pub fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Adds a store: its shape, and the bytes of an element.
    pub fn store(&mut self, name: impl Into<Name>, shape: impl Into<Vec<u64>>, element_bytes: u64) -> StoreId {
        self.stores.push(StoreShape { name: name.into(), extents: shape.into(), element_bytes, is_kept: false });
        StoreId(self.stores.len() as u32 - 1)
    }

    /// Adds an operation, behind those that are there.
    pub fn op(&mut self, op: Operation) -> OpId {
        *self.named.entry(op.name.clone()).or_default() += 1;
        self.ops.push(op);
        OpId(self.ops.len() as u32 - 1)
    }

    /// Keeps a store: it is whole at the end.
    pub fn keep(&mut self, store: StoreId) {
        self.stores.get_mut(store.index()).into_iter().for_each(|store| store.is_kept = true);
    }

    /// Returns the operations in order.
    pub fn ops(&self) -> impl ExactSizeIterator<Item = OpId> + use<> {
        (0..self.ops.len() as u32).map(OpId)
    }

    /// Returns the name of an operation.
    ///
    /// # Panics
    /// If it is of another outline with more operations.
    pub fn name_of(&self, op: OpId) -> &Name {
        &self.ops[op.index()].name
    }

    /// Returns an operation as messages show it.
    pub(super) fn op_name(&self, op: usize) -> OpName {
        let name = self.ops[op].name.clone();
        OpName { id: OpId(op as u32), is_unique: self.named[&name] == 1, name }
    }

    pub(super) fn accesses(&self, op: OpId) -> &[Access] {
        &self.ops[op.index()].accesses
    }

    /// Returns the name of a store.
    ///
    /// # Panics
    /// If it is of another outline with more stores.
    pub fn store_name(&self, store: StoreId) -> &Name {
        &self.stores[store.index()].name
    }

    /// Checks names, sizes and parts.
    pub(crate) fn check(&self) -> Result<()> {
        let counts = [("the number of stores", self.stores.len()), ("the number of operations", self.ops.len())];
        if let Some((what, got)) = counts.into_iter().find(|&(_, got)| got > OPS_MAX) {
            return Err(Kind::Limit { what: what.into(), got, limit: OPS_MAX }.into());
        }
        let mut names = HashSet::new();
        for store in &self.stores {
            if !names.insert(&*store.name) {
                return Err(Kind::DuplicateStore { store: store.name.clone() }.into());
            }
            let sizes = sizes_fault(&store.extents, true);
            let is_large = store.element_bytes > 1 << 20;
            let large = "has elements of more than 2^20 bytes: add an axis, and make its elements smaller";
            let fault = sizes.or_else(|| is_large.then(|| large.into()));
            if let Some(fault) = fault {
                return Err(Kind::Outline { what: format!("store '{}'", store.name), fault }.into());
            }
        }
        (0..self.ops.len()).try_for_each(|op| self.check_op(op))
    }

    fn check_op(&self, number: usize) -> Result<()> {
        let op = &self.ops[number];
        let fault = |fault: String| Err(Kind::Outline { what: format!("operation {}", self.op_name(number)), fault }.into());
        if let Some(sizes) = sizes_fault(op.axes(), false) {
            return fault(sizes);
        }
        for access in &op.accesses {
            let Some(store) = self.stores.get(access.store.index()) else {
                return fault("uses a store of another outline: add it to this one".into());
            };
            if let Some(why) = access.part.fault(&store.extents, op.axes()) {
                return fault(format!("{} store '{}' {why}", access.mode.verb(), store.name));
            }
        }
        Ok(())
    }
}

impl Mode {
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Reduce(_) => "reduces into",
        }
    }
}

/// Returns why axes are no store or no launch.
fn sizes_fault(axes: &[u64], is_store: bool) -> Option<String> {
    let volume = axes.iter().try_fold(1_u64, |product, &axis| product.checked_mul(axis));
    match axes {
        _ if axes.len() > AXES_MAX => Some(format!("has {} axes, and may have {AXES_MAX}: make one of several", axes.len())),
        _ if axes.contains(&0) && !is_store => {
            Some("has an axis without batches: launch at least one along each, or leave the operation out".into())
        }
        _ if volume.is_none_or(|volume| volume > VOLUME_MAX) || axes.iter().any(|&axis| axis > VOLUME_MAX) => {
            Some(match is_store {
                true => "has more than 2^40 elements: make it smaller, or split it".into(),
                false => "has more than 2^40 batches: launch fewer, with larger tiles".into(),
            })
        }
        _ => None,
    }
}
