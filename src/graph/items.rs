//! Parts of a pipeline's graph that the graph of a run does not have: states, feedback, and the values that
//! leave with each item. A state and a feedback are inputs of the graph, which the pipeline fills itself.

use std::any::TypeId;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use super::between::{Between, Fill, Kept, Stays};
use super::builder::Graph;
use super::handle::Value;
use super::source::Binder;
use super::values::{Maker, Type};
use super::{NodeId, PORTS_MAX};
use crate::error::{Kind, Result};
use crate::name::Name;
use crate::value::args::{Data, OneRead, Param, Single, tuples};
use crate::value::{Cells, Slot, StateGuard, StateRef};

/// A value that lives as long as a run of its pipeline. [`Graph::state`] makes it. One node holds it: the
/// node reads `&mut state` and gets `&mut T`. An async node gets a [`StateGuard`].
///
/// # Examples
/// A sum that grows from item to item:
/// ```
/// use anabranch::{Executor, Pipeline, Ranked};
/// use futures::{TryStreamExt, stream};
///
/// let sums = Pipeline::new("sums", &Ranked::default(), |g, x| {
///     let mut total = g.state("total", || 0);
///     g.task("add", (&mut total, &x), |total: &mut u32, x: &u32| {
///         *total += x;
///         *total
///     })
/// })?;
/// let exec = Executor::inline();
/// let results = exec.pipe(&sums, stream::iter(1..=4));
/// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?, [1, 3, 6, 10]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct State<T> {
    graph: usize,
    slot: Slot<StateRef<T>>,
    place: usize,
    name: Name,
}

/// A value that a later node made for an earlier item. [`Graph::feedback`] makes it, nodes read it as
/// `&*feedback`, and [`Graph::feed`] gives it its values.
///
/// # Examples
/// Each item is smoothed with the result of the item before:
/// ```
/// use anabranch::{Executor, Pipeline, Ranked};
/// use futures::{TryStreamExt, stream};
///
/// let smooth = Pipeline::new("smooth", &Ranked::default(), |g, x| {
///     let before = g.feedback("before", || 0.0);
///     let now = g.task("smooth", (&x, &*before), |x: &f64, before: &f64| (x + before) / 2.0);
///     g.feed(before, &now);
///     now
/// })?;
/// let exec = Executor::inline();
/// let results = exec.pipe(&smooth, stream::iter([8.0, 8.0, 8.0]));
/// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?, [4.0, 6.0, 7.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Feedback<T> {
    value: Value<T>,
    place: usize,
    name: Name,
}

impl<T> Deref for Feedback<T> {
    type Target = Value<T>;

    fn deref(&self) -> &Value<T> {
        &self.value
    }
}

impl<T> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State<{}>", std::any::type_name::<T>())
    }
}

impl<T> fmt::Debug for Feedback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Feedback<{}>", std::any::type_name::<T>())
    }
}

impl Graph {
    /// Adds a state to the graph of a [`Pipeline`](crate::Pipeline): a value that lives as long as a run of
    /// the pipeline, and passes from item to item. One node holds it:
    ///
    /// ```
    /// # use anabranch::{Pipeline, Ranked};
    /// let numbered = Pipeline::new("numbered", &Ranked::default(), |g, line| {
    ///     let mut count = g.state("count", || 0);
    ///     g.task("number", (&mut count, &line), |count: &mut u32, line: &String| {
    ///         *count += 1;
    ///         format!("{count} {line}")
    ///     })
    /// })?;
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    ///
    /// The phase of this node works on one item at a time, in order. If the node fails or panics, the state
    /// stays as the node left it, and the next item finds it in that state. The first poll of the results
    /// calls `init`.
    pub fn state<T: Send + 'static>(&mut self, name: impl Into<Name>, init: impl Fn() -> T + Send + Sync + 'static) -> State<T> {
        let (name, slot) = (name.into(), self.layout.slot::<StateRef<T>>());
        let init = move || -> Fill {
            let home = StateRef::new(init());
            Box::new(move |cells| cells.put(slot, home.share()))
        };
        let is = Stays::State { holder: None };
        let (_, place) = self.add_between(name.clone(), Type::of::<StateRef<T>>(), slot.offset(), Arc::new(init), is);
        State { graph: self.address(), slot, place, name }
    }

    /// Adds a feedback to the graph of a [`Pipeline`](crate::Pipeline): a value of an earlier item. Where
    /// there is no earlier item, the value is `init()`. Nodes read it as `&*feedback`, and [`Graph::feed`]
    /// names the value that is fed back. All nodes that read it are in one phase. The first poll of the
    /// results calls `init`.
    ///
    /// If the phase that makes the value is the one that reads it, a reader gets the value of the item
    /// before. For each phase by which the maker is later than the reader, the value is one item older. If
    /// the node that makes it fails for an item, the previous value stays.
    pub fn feedback<T: Data + Clone>(
        &mut self,
        name: impl Into<Name>,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Feedback<T> {
        let (name, slot) = (name.into(), self.layout.slot::<T>());
        let init = move || -> Fill {
            let first = init();
            Box::new(move |cells| cells.put(slot, first.clone()))
        };
        let copy = |from: Cells<'_>, at: u32, to: Cells<'_>, place: u32| {
            let value = from.get(Slot::<T>::at(at)).clone();
            to.replace(Slot::at(place), value);
        };
        let is = Stays::Feedback { from: None, copy };
        let (value, place) = self.add_between(name.clone(), Type::of::<T>(), slot.offset(), Arc::new(init), is);
        self.values[value as usize].kept = Some(Kept::Feedback);
        Feedback { value: self.value_at(value), place, name }
    }

    /// Sets the value of a feedback. The value of each item is cloned for the later item that reads it.
    pub fn feed<T: Data + Clone>(&mut self, feedback: Feedback<T>, value: &Value<T>) {
        let between = self.between.get(feedback.place);
        let is_own = between.is_some_and(|between| self.inputs[between.input as usize].value == feedback.value.index);
        let is_own = is_own && self.owns(&feedback.value);
        if !is_own || !self.owns(value) {
            return self.mistake(Kind::ForeignFeed { name: feedback.name, is_value: is_own }.into());
        }
        let info = &self.values[value.index as usize];
        if info.kept == Some(Kept::Feedback) {
            let value = self.maker_name(info.maker);
            return self.mistake(Kind::FedFeedback { value }.into());
        }
        if let Stays::Feedback { from, .. } = &mut self.between[feedback.place].is {
            *from = Some(value.index);
        }
        self.keep(value.index, Kept::FedBack);
    }

    fn add_between(
        &mut self,
        name: Name,
        of: Type,
        offset: u32,
        init: Arc<dyn Fn() -> Fill + Send + Sync>,
        is: Stays,
    ) -> (u32, usize) {
        self.check_port(is.kind(), &name);
        let input = self.inputs.len().min(PORTS_MAX) as u32;
        let value = self.input_of_type(name.clone(), of, offset);
        self.between.push(Between { name, input, init, is });
        (value, self.between.len() - 1)
    }

    /// Checks that the graph of a pipeline has no ports except its item, states and feedback.
    pub(crate) fn check_ports(&self) -> Result<()> {
        let is_between = |input: usize| self.between.iter().any(|between| between.input as usize == input);
        let input = (1..self.inputs.len()).find(|&input| !is_between(input)).map(|input| (&self.inputs[input].name, false));
        let port = input.or_else(|| Some((&self.outputs.first()?.name, true)));
        port.map_or(Ok(()), |(name, is_output)| Err(Kind::PortInPipeline { name: name.clone(), is_output }.into()))
    }

    /// Keeps a value until the end of its item.
    fn keep(&mut self, value: u32, why: Kept) {
        let info = &mut self.values[value as usize];
        info.is_read = true;
        info.kept.get_or_insert(why);
        if let Maker::Node(node) = info.maker {
            let output = value - self.works[node.index()].value;
            if !self.shape().outputs().contains(&(node, output)) {
                self.shape_mut().output(node, output);
            }
        }
    }

    /// Returns the cell of a state, if the state belongs to this graph. Also checks the type, like
    /// [`Graph::owns`].
    fn cell_of<T: Send + 'static>(&self, state: &State<T>) -> Option<Slot<StateRef<T>>> {
        let between = self.between.get(state.place).filter(|_| self.address() == state.graph)?;
        let value = &self.values[self.inputs[between.input as usize].value as usize];
        (value.of.id == TypeId::of::<StateRef<T>>()).then(|| Slot::at(value.offset))
    }

    /// Records that a node holds a state.
    fn hold(&mut self, place: usize, node: NodeId) {
        let input = self.between[place].input;
        let Stays::State { holder } = &mut self.between[place].is else { return };
        match holder.replace(node) {
            None => {}
            Some(first) => {
                let [first, second] = [first, node].map(|node| self.full_name(node));
                let state = self.between[place].name.clone();
                self.mistake(Kind::HeldTwice { state, first, second }.into());
            }
        }
        let value = self.inputs[input as usize].value;
        self.read_own(value, node, super::values::Use::Read);
    }
}

/// The argument of a node that holds a state.
///
/// It follows from `&mut state`. A program does not name it.
pub struct Held<T>(Slot<StateRef<T>>);

impl<T> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held<{}>", std::any::type_name::<T>())
    }
}

impl<T> Single for &mut State<T> {}

impl<T: Send + 'static> OneRead<Graph> for &mut State<T> {
    type Param = Held<T>;

    fn bind(self, binder: &mut Binder<'_>) -> Held<T> {
        let (graph, reader) = (&mut *binder.graph, binder.reader);
        let own = graph.cell_of(self);
        if own.is_some() {
            graph.hold(self.place, reader);
        } else {
            let (name, state) = (graph.full_name(reader), self.name.clone());
            graph.mistake(Kind::ForeignState { name, state }.into());
        }
        Held(own.unwrap_or(self.slot))
    }
}

impl<T: Send + 'static> Param<Graph> for Held<T> {
    type Arg<'a> = &'a mut T;
    type Owned = StateGuard<T>;

    #[inline(always)]
    fn fetch<'a>(&'a self, cells: Cells<'a>) -> Result<&'a mut T, Infallible> {
        Ok(cells.hold(self.0))
    }

    fn own(&self, cells: Cells<'_>) -> Result<StateGuard<T>, Infallible> {
        Ok(cells.take_state(self.0))
    }

    fn check<'a>(&'a self, _: Cells<'a>) -> Result<(), Infallible> {
        Ok(())
    }
}

/// A typed value that leaves the pipeline with each item, and the offset of its cell.
#[derive(Debug)]
pub struct Outlet<T> {
    offset: u32,
    kind: PhantomData<fn() -> T>,
}

/// The result of each item of a pipeline: a [`Value`], or a tuple of up to eight.
///
/// # Examples
/// Two results for each item:
/// ```
/// use anabranch::{Executor, Pipeline, Ranked};
/// use futures::{TryStreamExt, stream};
///
/// let divide = Pipeline::new("divide", &Ranked::default(), |g, x| {
///     let tens = g.task("tens", &x, |x: &u32| x / 10);
///     let ones = g.task("ones", &x, |x: &u32| x % 10);
///     (tens, ones)
/// })?;
/// let exec = Executor::inline();
/// let results = exec.pipe(&divide, stream::iter([47, 8]));
/// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?, [(4, 7), (0, 8)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the results of a pipeline",
    label = "let the closure return a `Value`, or a tuple of up to eight of them"
)]
pub trait Outlets {
    /// The type of the result: a `T`, or a tuple.
    type Item: Send + 'static;
    #[doc(hidden)]
    type Keys: Send + Sync + 'static;
    #[doc(hidden)]
    fn declare(self, graph: &mut Graph) -> Self::Keys;
    #[doc(hidden)]
    fn take(keys: &Self::Keys, cells: Cells<'_>) -> Self::Item;
}

impl Graph {
    fn outlet<T: Data>(&mut self, value: &Value<T>) -> Outlet<T> {
        if !self.owns(value) {
            self.mistake(Kind::ForeignUse { user: "the pipeline returns" }.into());
            return Outlet { offset: 0, kind: PhantomData };
        }
        let (maker, kept) = (self.values[value.index as usize].maker, self.values[value.index as usize].kept);
        if kept == Some(Kept::Result) || kept == Some(Kept::Feedback) {
            let value = self.maker_name(maker);
            self.mistake(Kind::ResultTwice { value, is_feedback: kept == Some(Kept::Feedback) }.into());
        }
        self.values[value.index as usize].kept = None;
        self.keep(value.index, Kept::Result);
        Outlet { offset: self.values[value.index as usize].offset, kind: PhantomData }
    }
}

impl<T: Data> Outlets for Value<T> {
    type Item = T;
    type Keys = Outlet<T>;

    fn declare(self, graph: &mut Graph) -> Outlet<T> {
        graph.outlet(&self)
    }

    fn take(key: &Outlet<T>, cells: Cells<'_>) -> T {
        cells.take(Slot::at(key.offset))
    }
}

macro_rules! outlets {
    ($($V:ident $v:ident $T:ident $t:ident $number:tt),*) => {
        impl<$($T: Data),*> Outlets for ($(Value<$T>,)*) {
            type Item = ($($T,)*);
            type Keys = ($(Outlet<$T>,)*);

            fn declare(self, graph: &mut Graph) -> Self::Keys {
                let ($($v,)*) = self;
                ($(graph.outlet(&$v),)*)
            }

            fn take(keys: &Self::Keys, cells: Cells<'_>) -> Self::Item {
                ($(cells.take(Slot::at(keys.$number.offset)),)*)
            }
        }
    };
}

tuples!(outlets);
