//! Names: of nodes, values, variables, operations, functions, inputs and outputs.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The name of a node, a value, a variable, an operation, a function, an input or an output. It is a `str`
/// that is cheap to clone.
///
/// A parameter of type `impl Into<Name>` accepts a `&'static str` (which allocates nothing), a `String`, a
/// `&String`, a `Cow<'static, str>` or a `&Name`. Convert other `&str` to a `String`.
///
/// # Examples
/// ```
/// use anabranch::{Graph, Name};
///
/// let mut g = Graph::new();
/// let x = g.task("a literal", (), || 1);
/// for number in 0..3 {
///     let name = Name::from(format!("add {number}"));
///     let y = g.task(&name, &x, move |x: &i32| x + number);
///     g.output(name, &y);
/// }
/// assert_eq!(g.compile()?.schedule().shape().nodes()[3].name, "add 2");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct Name(Text);

/// Two words long, because an operation, which holds a name, moves more than once before it is in its slot.
#[derive(Clone)]
enum Text {
    Fixed(&'static str),
    Made(Arc<String>),
}

impl Name {
    /// Returns true if the name's drop does nothing.
    #[inline]
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.0, Text::Fixed(_))
    }

    pub(crate) fn to_cow(&self) -> Cow<'static, str> {
        match &self.0 {
            Text::Fixed(name) => Cow::Borrowed(name),
            Text::Made(name) => Cow::Owned(String::clone(name)),
        }
    }
}

impl From<&'static str> for Name {
    #[inline]
    fn from(name: &'static str) -> Self {
        Self(Text::Fixed(name))
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(Text::Made(Arc::new(name)))
    }
}

impl From<&String> for Name {
    fn from(name: &String) -> Self {
        name.clone().into()
    }
}

impl From<Cow<'static, str>> for Name {
    #[inline]
    fn from(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => name.into(),
            Cow::Owned(name) => name.into(),
        }
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Self {
        name.clone()
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Text::Fixed(name) => name,
            Text::Made(name) => name,
        }
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

/// Hashes like a `str`, so that maps find a name by its text.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
