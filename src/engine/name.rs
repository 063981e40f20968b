//! Names of operations and variables: two words each.

use std::borrow::Cow;
use std::ops::Deref;

/// A name. As a `Cow<'static, str>`, which has three words, though an operation moves more than once before
/// it is where it lies.
pub(super) enum Name {
    Fixed(&'static str),
    #[expect(clippy::box_collection, reason = "one word, so that the whole has two")]
    Made(Box<String>),
}

impl Name {
    pub(super) fn to_cow(&self) -> Cow<'static, str> {
        match self {
            Self::Fixed(name) => Cow::Borrowed(name),
            Self::Made(name) => Cow::Owned(String::clone(name)),
        }
    }
}

impl From<Cow<'static, str>> for Name {
    #[inline]
    fn from(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::Fixed(name),
            Cow::Owned(name) => Self::Made(Box::new(name)),
        }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Fixed(name) => name,
            Self::Made(name) => name,
        }
    }
}
