//! The arguments of closures, and how each is fetched from its place.

use std::sync::Arc;

use super::each::Each;

/// The owner of the values that closures read: a graph, or an engine.
pub trait Place: 'static {
    /// The right to fetch the arguments of one closure.
    type View<'a>: Copy;
    /// Why an argument cannot be fetched.
    type Fault;
    /// Records the reads.
    type Binder<'b>;
}

/// A type of values: `Send`, `Sync` and without borrows, because they go from thread to thread. All such
/// types implement it.
///
/// # Examples
/// A function of yours that adds a value of any type:
/// ```
/// use anabranch::graph::Data;
/// use anabranch::{Graph, Value};
///
/// fn constant<T: Data + Clone>(g: &mut Graph, name: &'static str, value: T) -> Value<T> {
///     g.task(name, (), move || value.clone())
/// }
///
/// let mut g = Graph::new();
/// let (pi, words) = (constant(&mut g, "pi", 3.14), constant(&mut g, "words", vec!["a", "b"]));
/// ```
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` cannot go from thread to thread",
    label = "values are `Send` and `Sync`: an `Arc` instead of an `Rc`, a `Mutex` or an atomic instead of a `RefCell` or a `Cell`"
)]
pub trait Data: Send + Sync + 'static {}

// Else rustc reports `Send` and `Sync`, one by one, where the value is an argument.
#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static> Data for T {}

/// A key to one value of a place.
pub trait Key: Sized + Send + Sync + 'static {
    type Place: Place;
    type Value: Send + Sync + 'static;

    fn get<'a>(&'a self, view: View<'a, Self>) -> Result<&'a Self::Value, Fault<Self>>;
    fn each<'a>(keys: &'a [Self], view: View<'a, Self>) -> Result<Each<'a, Self::Value>, Fault<Self>>;
    fn share(&self, view: View<'_, Self>) -> Result<Arc<Self::Value>, Fault<Self>>;
    fn take(&self, view: View<'_, Self>) -> Result<Self::Value, Fault<Self>>;
    /// Returns an error if the value cannot be taken. The answer holds as long as the view.
    fn check_take(&self, view: View<'_, Self>) -> Result<(), Fault<Self>>;
}

type View<'a, K> = <<K as Key>::Place as Place>::View<'a>;
type Fault<K> = <<K as Key>::Place as Place>::Fault;

/// One argument of a closure.
#[diagnostic::on_unimplemented(
    message = "a closure cannot get `{Self}` here",
    label = "what it reads is wrong: see the error of the reads"
)]
pub trait Param<X: Place>: Send + Sync + 'static {
    /// What a task or a kernel gets.
    type Arg<'a>;
    /// What an async closure gets.
    type Owned: Send + 'static;
    /// Whether it takes its value out.
    const TAKES: bool = false;

    fn fetch<'a>(&'a self, view: X::View<'a>) -> Result<Self::Arg<'a>, X::Fault>;
    fn own(&self, view: X::View<'_>) -> Result<Self::Owned, X::Fault>;
    /// Returns an error if it cannot be fetched. The answer holds as long as the view.
    fn check<'a>(&'a self, view: X::View<'a>) -> Result<(), X::Fault>;
}

/// All arguments of a closure.
pub trait Params<X: Place>: Send + Sync + 'static {
    /// Whether there is more than one. A single argument needs no check before its fetch: nothing is taken
    /// before it, so the fetch itself may fail.
    const IS_MANY: bool;

    /// Returns an error if an argument takes its value and not all can be fetched: so nothing is taken in
    /// vain.
    fn check<'a>(&'a self, view: X::View<'a>) -> Result<(), X::Fault>;
}

/// An argument that is read.
#[derive(Debug)]
pub struct ByRef<K>(pub(crate) K);

impl<K: Key> Param<K::Place> for ByRef<K> {
    type Arg<'a> = &'a K::Value;
    type Owned = Arc<K::Value>;

    #[inline(always)]
    fn fetch<'a>(&'a self, view: View<'a, K>) -> Result<&'a K::Value, Fault<K>> {
        self.0.get(view)
    }

    fn own(&self, view: View<'_, K>) -> Result<Arc<K::Value>, Fault<K>> {
        self.0.share(view)
    }

    fn check<'a>(&'a self, view: View<'a, K>) -> Result<(), Fault<K>> {
        self.0.get(view).map(drop)
    }
}

/// An argument that is taken.
#[derive(Debug)]
pub struct ByValue<K>(pub(crate) K);

impl<K: Key> Param<K::Place> for ByValue<K> {
    type Arg<'a> = K::Value;
    type Owned = K::Value;
    const TAKES: bool = true;

    #[inline(always)]
    fn fetch<'a>(&'a self, view: View<'a, K>) -> Result<K::Value, Fault<K>> {
        self.0.take(view)
    }

    fn own(&self, view: View<'_, K>) -> Result<K::Value, Fault<K>> {
        self.0.take(view)
    }

    fn check<'a>(&'a self, view: View<'a, K>) -> Result<(), Fault<K>> {
        self.0.check_take(view)
    }
}

/// An argument that reads any number of values of one type.
#[derive(Debug)]
pub struct EachOf<K>(pub(crate) Box<[K]>);

impl<K: Key> Param<K::Place> for EachOf<K> {
    type Arg<'a> = Each<'a, K::Value>;
    type Owned = Vec<Arc<K::Value>>;

    fn fetch<'a>(&'a self, view: View<'a, K>) -> Result<Each<'a, K::Value>, Fault<K>> {
        K::each(&self.0, view)
    }

    fn own(&self, view: View<'_, K>) -> Result<Vec<Arc<K::Value>>, Fault<K>> {
        self.0.iter().map(|key| key.share(view)).collect()
    }

    fn check<'a>(&'a self, view: View<'a, K>) -> Result<(), Fault<K>> {
        self.0.iter().try_for_each(|key| key.get(view).map(drop))
    }
}
