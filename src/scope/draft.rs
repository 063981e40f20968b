//! A scope while it is built: its stores, what it makes once, and its operations in order.

use std::any::TypeId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::body::Body;
use super::scalar::Scalar;
use super::store::{Shape, Space, Store};
use super::streaming::Streaming;
use crate::device::Element;
use crate::error::{Error, Kind};
use crate::graph::{Data, NewJob, Value};
use crate::name::Name;

/// All that a closure says of a scope.
pub(super) struct Draft {
    /// Identifies the stores of this scope.
    token: usize,
    pub(super) name: Name,
    /// What stands before the names of operations: the inner scopes that are being built.
    pub(super) prefix: String,
    pub(super) settings: Streaming,
    pub(super) stores: Vec<StoreDraft>,
    pub(super) scalars: Vec<ScalarDraft>,
    pub(super) ops: Vec<OpDraft>,
    /// The reads of values of the graph around.
    pub(super) given: Vec<GivenRead>,
    op_names: HashSet<Name>,
    store_names: HashSet<Name>,
    mistake: Option<Error>,
}

/// How many scopes there were.
static TOKENS: AtomicUsize = AtomicUsize::new(0);

/// The read of a value of the graph around.
pub(super) type GivenRead = Box<dyn FnOnce(&mut NewJob<'_>)>;

/// A store, or what an update makes of one.
pub(super) struct StoreDraft {
    pub(super) name: Name,
    pub(super) extents: Vec<u64>,
    pub(super) element_bytes: u64,
    pub(super) align: u64,
    of: TypeId,
    /// The shape of its tiles, if it was said.
    pub(super) tile: Option<Vec<u64>>,
    pub(super) is_kept: bool,
    /// The store that was updated.
    pub(super) updates: Option<u32>,
    pub(super) is_on_device: bool,
}

pub(super) struct ScalarDraft {
    pub(super) name: Name,
    pub(super) bytes: u64,
    of: TypeId,
}

pub(super) struct OpDraft {
    pub(super) name: Name,
    pub(super) uses: Vec<Use>,
    pub(super) body: Body,
}

/// What an operation does with a store, or with a value that is made once.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) of: Used,
    pub(super) mode: Mode,
    pub(super) shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Used {
    Store(u32),
    Scalar(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Read,
    Write,
    /// The store is the updated form of another.
    Update,
    Reduce(Name),
}

impl Draft {
    pub(super) fn new(name: Name, settings: Streaming) -> Self {
        Self {
            // ORDERING: Relaxed: only the numbers count.
            token: TOKENS.fetch_add(1, Ordering::Relaxed),
            name,
            prefix: String::new(),
            settings,
            stores: Vec::new(),
            scalars: Vec::new(),
            ops: Vec::new(),
            given: Vec::new(),
            op_names: HashSet::new(),
            store_names: HashSet::new(),
            mistake: None,
        }
    }

    pub(super) fn token(&self) -> usize {
        self.token
    }

    /// Keeps the first mistake.
    pub(super) fn mistake(&mut self, error: Error) {
        self.mistake.get_or_insert(error);
    }

    /// Keeps the first mistake, as a sentence about the scope.
    pub(super) fn fault(&mut self, fault: String) {
        let error = self.fault_of(fault);
        self.mistake(error);
    }

    /// Returns a sentence about the scope as an error.
    pub(super) fn fault_of(&self, fault: String) -> Error {
        Kind::Scope { scope: self.name.clone(), fault }.into()
    }

    /// Keeps that something of another scope is used.
    pub(super) fn foreign(&mut self, use_of: &str) {
        self.fault(format!("{use_of} of another scope: use those of the `Scope` that its closure gets"));
    }

    pub(super) fn take_mistake(&mut self) -> Option<Error> {
        self.mistake.take()
    }

    /// Returns the name of a store or a scalar that no other has.
    fn store_name(&mut self, name: &str) -> Name {
        unique(&mut self.store_names, format!("{}{name}", self.prefix))
    }

    pub(super) fn add_store<T: Element, const N: usize, M: Space>(
        &mut self,
        name: &str,
        extents: Vec<u64>,
        updates: Option<u32>,
    ) -> Store<T, N, M> {
        let name = self.store_name(name);
        let tile = updates.and_then(|from| self.stores[from as usize].tile.clone());
        let (element_bytes, align, of) = (size_of::<T>() as u64, align_of::<T>() as u64, TypeId::of::<Store<T, N, M>>());
        let is_on_device = M::IS_ON_DEVICE;
        let store = StoreDraft { name, extents, element_bytes, align, of, tile, is_kept: false, updates, is_on_device };
        self.stores.push(store);
        Store::new(self.token(), self.stores.len() as u32 - 1)
    }

    /// Adds a value that is made once.
    pub(super) fn add_scalar<A: Data>(&mut self, name: &str) -> Scalar<A> {
        let name = self.store_name(name);
        self.scalars.push(ScalarDraft { name, bytes: size_of::<A>().max(1) as u64, of: TypeId::of::<A>() });
        Scalar::new(self.token(), self.scalars.len() as u32 - 1)
    }

    pub(super) fn owns<T: Element, const N: usize, M: Space>(&self, store: &Store<T, N, M>) -> bool {
        let known = self.stores.get(store.index as usize);
        store.scope == self.token() && known.is_some_and(|known| known.of == TypeId::of::<Store<T, N, M>>())
    }

    pub(super) fn owns_scalar<A: Data>(&self, scalar: &Scalar<A>) -> bool {
        let known = self.scalars.get(scalar.index as usize);
        scalar.scope == self.token() && known.is_some_and(|known| known.of == TypeId::of::<A>())
    }

    /// Begins an operation, with a name of its own.
    pub(super) fn begin(&mut self, name: &Name) -> Uses<'_> {
        let name = unique(&mut self.op_names, format!("{}{name}", self.prefix));
        Uses { draft: self, name, uses: Vec::new() }
    }
}

/// Returns the name, with a number if others have it.
fn unique(names: &mut HashSet<Name>, name: String) -> Name {
    let numbered = (2..).map(|number| format!("{name} {number}"));
    let name = std::iter::once(name.clone()).chain(numbered).map(Name::from).find(|name| !names.contains(name));
    let name = name.expect("there are more numbers than names");
    names.insert(name.clone());
    name
}

/// The uses of an operation, while they are recorded.
///
/// A program does not name it: [`Store`] and its views record themselves.
pub struct Uses<'d> {
    pub(super) draft: &'d mut Draft,
    pub(super) name: Name,
    uses: Vec<Use>,
}

impl std::fmt::Debug for Uses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uses").field("op", &self.name).finish_non_exhaustive()
    }
}

impl Uses<'_> {
    /// Records the use of a store. Returns its place among those of the operation.
    pub(super) fn store<T, const N: usize, M>(&mut self, store: &Store<T, N, M>, shape: Shape, mode: Mode) -> u32
    where
        T: Element,
        M: Space,
    {
        if !self.draft.owns(store) {
            self.is_foreign("a store");
        }
        self.add(Use { of: Used::Store(store.index), mode, shape })
    }

    /// Records the read of a value that is made once. Returns its number.
    pub(super) fn scalar<A: Data>(&mut self, scalar: &Scalar<A>) -> u32 {
        if !self.draft.owns_scalar(scalar) {
            self.is_foreign("a scalar");
        }
        self.add(Use { of: Used::Scalar(scalar.index), mode: Mode::Read, shape: Shape::own(1) });
        scalar.index
    }

    /// Records the read of a value of the graph around. Returns its number.
    pub(super) fn given<T: Data>(&mut self, value: &Value<T>) -> u32 {
        let value = *value;
        self.draft.given.push(Box::new(move |job| job.read(&value)));
        self.draft.given.len() as u32 - 1
    }

    pub(super) fn add(&mut self, used: Use) -> u32 {
        self.uses.push(used);
        self.uses.len() as u32 - 1
    }

    fn is_foreign(&mut self, what: &str) {
        self.draft.foreign(&format!("operation '{}' uses {what}", self.name));
    }

    /// Completes the operation.
    pub(super) fn end(self, body: Body) {
        let Self { draft, name, uses } = self;
        draft.ops.push(OpDraft { name, uses, body });
    }
}
