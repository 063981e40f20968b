//! Names of operations and variables: two words each.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

/// A name. Half the size of a `Cow<'static, str>`, because an operation moves more than once before it is in
/// its slot.
#[derive(Clone)]
pub(crate) enum Name {
    Fixed(&'static str),
    Made(Arc<String>),
}

impl Name {
    pub(crate) fn to_cow(&self) -> Cow<'static, str> {
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
            Cow::Owned(name) => Self::Made(Arc::new(name)),
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
