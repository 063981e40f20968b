//! Values that cross from rank to rank by `serde`, in the format of the crate `postcard`.

use std::any::{TypeId, type_name};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{Encoded, Form, Wire};
use crate::error::BoxError;
use crate::graph::{Data, Graph, Made};

/// A value that crosses from rank to rank by `serde`.
///
/// It is the value of a node or of a variable that communicates: of a broadcast, a send or a receive. Values
/// that cross because their nodes have ranks need no wrapper: see [`Graph::wire_serde`].
///
/// The bytes are those of the crate [`postcard`](https://docs.rs/postcard). They do not say what they are, so
/// all ranks run the same program, and some attributes do not work: `serde(untagged)`, `serde(tag = ..)` and
/// `serde(flatten)` are errors; with `serde(skip_serializing_if)`, the receiver has an error, or another
/// value. Without this, a `Vec` of plain old data is sent from where it is.
///
/// # Examples
/// ```
/// use std::collections::BTreeMap;
///
/// use anabranch::comm::{Serde, World};
/// use anabranch::{Executor, Flow, Result};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Default)]
/// struct Settings {
///     title: String,
///     limits: BTreeMap<String, f64>,
/// }
///
/// async fn rank(world: World) -> Result<String> {
///     let exec = Executor::inline();
///     let flow = exec.flow(async |f: &Flow| {
///         let title = if world.rank() == 0 { "a title".into() } else { String::new() };
///         let mine = f.value("mine", Serde(Settings { title, ..Settings::default() }));
///         let settings = f.broadcast(&world, "settings", &mine, 0);
///         Ok(f.get(&settings).await?.title.clone())
///     });
///     flow.await
/// }
///
/// let ranks = World::local(2)?.into_iter().map(rank);
/// assert_eq!(futures::executor::block_on(futures::future::try_join_all(ranks))?, ["a title"; 2]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Serde<T>(pub T);

impl<T> Deref for Serde<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize + DeserializeOwned + Data> Wire for Serde<T> {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        encoded(&self.0)
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        decoded(bytes).map(Self)
    }
}

impl Graph {
    /// Says that values of type `T` cross from rank to rank by `serde`, where [`NodeMut::rank`] lets a node
    /// read one of another rank. The nodes make and read a plain `T`. [`Serde`] says which types do not
    /// cross.
    ///
    /// [`NodeMut::rank`]: crate::graph::NodeMut::rank
    ///
    /// # Examples
    /// ```
    /// use anabranch::comm::World;
    /// use anabranch::{Executor, Graph, Inputs, Result};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// enum Found {
    ///     Nothing,
    ///     Lines(Vec<String>),
    /// }
    ///
    /// async fn rank(world: World) -> Result<usize> {
    ///     let mut g = Graph::new();
    ///     g.wire_serde::<Found>();
    ///     let empty = g.task("empty", (), || Found::Nothing);
    ///     let full = g.task("full", (), || Found::Lines(vec!["one".into(), "two".into()]));
    ///     g.node(&empty).rank(0);
    ///     g.node(&full).rank(1);
    ///     // It runs on all ranks.
    ///     let count = g.task("count", (&empty, &full), |empty: &Found, full: &Found| {
    ///         let count = |found: &Found| if let Found::Lines(lines) = found { lines.len() } else { 0 };
    ///         count(empty) + count(full)
    ///     });
    ///     g.output("count", &count);
    ///     let mut outputs = Executor::inline().run(&g.compile_for(&world)?, Inputs::new()).await?;
    ///     Ok(*outputs.take("count")?)
    /// }
    ///
    /// let ranks = World::local(2)?.into_iter().map(rank);
    /// assert_eq!(futures::executor::block_on(futures::future::try_join_all(ranks))?, [2, 2]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn wire_serde<T: Serialize + DeserializeOwned + Data>(&mut self) {
        self.wires.insert(TypeId::of::<T>(), Arc::new(Form::by_serde::<T>()));
    }
}

impl Form {
    /// Returns how values of a type cross by `serde`, without the wrapper. Its name is that of the wrapper,
    /// so ranks find out if one of them lets the type cross otherwise.
    fn by_serde<T: Serialize + DeserializeOwned + Data>() -> Self {
        fn made<T: DeserializeOwned + Data>(bytes: &[u8]) -> Result<Made, BoxError> {
            Ok(Box::new(decoded::<T>(bytes)?))
        }
        Self {
            of: type_name::<Serde<T>>(),
            id: TypeId::of::<Serde<T>>(),
            bytes: None,
            encode: |value| encoded(value.downcast_ref::<T>().expect("the form is that of the value's type")),
            decode: made::<T>,
            landing: |bytes, _| Encoded::landing(bytes, made::<T>),
            give_memory: |_| None,
            into_made: Err,
        }
    }
}

fn encoded<T: Serialize>(value: &T) -> Result<Cow<'_, [u8]>, BoxError> {
    let bytes = postcard::to_stdvec(value);
    bytes.map(Cow::Owned).map_err(|error| format!("a value of type `{}` has no bytes: {error}", type_name::<T>()).into())
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BoxError> {
    let why = match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => return Ok(value),
        Ok((_, rest)) => format!("{} are left", rest.len()),
        Err(error) => error.to_string(),
    };
    let (count, of) = (bytes.len(), type_name::<T>());
    Err(format!("{count} bytes are no value of type `{of}` ({why}): let the sender and the receiver use the same type").into())
}
