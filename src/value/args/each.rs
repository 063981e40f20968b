//! The argument for a slice of values.

use std::fmt;
use std::ops::Index;

use crate::value::{Cells, Slot};

/// The values that a closure reads through one slice (`&values[..]`), in its order.
///
/// # Examples
/// ```
/// use anabranch::graph::Each;
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let parts = [3, 1, 2].map(|number| g.task(format!("part {number}"), (), move || number));
/// let range = g.task("range", &parts[..], |parts: Each<i32>| (parts[0], parts.iter().copied().max()));
/// g.output("range", &range);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// # let mut outputs = futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
/// assert_eq!(*outputs.take::<(i32, Option<i32>)>("range")?, (3, Some(3)));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Each<'a, T>(Values<'a, T>);

enum Values<'a, T> {
    Cells(&'a [Slot<T>], Cells<'a>),
    /// Up to [`FEW`], and their number.
    Few([Option<&'a T>; FEW], usize),
    Many(Vec<&'a T>),
}

/// As many need no allocation.
const FEW: usize = 16;

impl<'a, T: 'static> Each<'a, T> {
    pub(crate) fn in_cells(slots: &'a [Slot<T>], cells: Cells<'a>) -> Self {
        Self(Values::Cells(slots, cells))
    }

    /// Returns values that were found one by one, unless one was not.
    pub(crate) fn found<E>(values: impl ExactSizeIterator<Item = Result<&'a T, E>>) -> Result<Self, E> {
        let count = values.len();
        if count > FEW {
            return values.collect::<Result<_, E>>().map(|many| Self(Values::Many(many)));
        }
        let mut few = [None; FEW];
        for (place, value) in few.iter_mut().zip(values) {
            *place = Some(value?);
        }
        Ok(Self(Values::Few(few, count)))
    }

    /// Returns the values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a T> + DoubleEndedIterator {
        (0..self.len()).map(|index| self.at(index))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match &self.0 {
            Values::Cells(slots, _) => slots.len(),
            Values::Few(_, count) => *count,
            Values::Many(values) => values.len(),
        }
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn at(&self, index: usize) -> &'a T {
        match &self.0 {
            Values::Cells(slots, cells) => cells.get(slots[index]),
            Values::Few(values, _) => values[index].expect("it was found"),
            Values::Many(values) => values[index],
        }
    }
}

impl<T: 'static> Index<usize> for Each<'_, T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.at(index)
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for Each<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
