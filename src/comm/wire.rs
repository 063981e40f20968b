//! How values cross from rank to rank: as the bytes that they have in memory, or encoded.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::error::BoxError;
use crate::graph::{Data, Made, Shared};

/// A value that can cross from rank to rank.
///
/// Numbers, `bool`, `()`, `String`, and `Vec`s and arrays of plain old data ([`bytemuck::Pod`]) can. The
/// elements of a `Vec` are sent from where they are, and received where they stay. Other types cross by
/// `serde`, with the feature `serde`: as `comm::Serde`. Or implement it for types of your own.
///
/// # Examples
/// A type of its own form:
/// ```
/// use std::borrow::Cow;
///
/// use anabranch::BoxError;
/// use anabranch::comm::Wire;
///
/// struct Interval(f64, f64);
///
/// impl Wire for Interval {
///     fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
///         Ok([self.0.to_le_bytes(), self.1.to_le_bytes()].concat().into())
///     }
///
///     fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
///         let [low, high] = <[f64; 2]>::from_wire(bytes)?;
///         Ok(Self(low, high))
///     }
/// }
///
/// let interval = Interval::from_wire(&Interval(1.0, 2.0).to_wire()?)?;
/// assert_eq!(interval.1, 2.0);
/// # Ok::<(), BoxError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` cannot cross from rank to rank",
    label = "use a number, a `String`, or a `Vec` of plain old data, wrap it in `comm::Serde`, or implement `comm::Wire`"
)]
pub trait Wire: Data + Sized {
    /// The number of bytes, if all values have the same.
    #[doc(hidden)]
    const BYTES: Option<usize> = None;

    /// Returns the bytes: borrowed if they are those of the value in memory. The rank that gives the value
    /// calls this once.
    ///
    /// # Errors
    /// If the value has no bytes. Other ranks wait for it, so the world breaks.
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError>;

    /// Returns the value of these bytes. They may have any alignment.
    ///
    /// # Errors
    /// If the bytes are those of no value.
    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError>;

    /// Returns memory for a value of so many bytes, which may be uninitialised. `spare` is that of another
    /// value of this type, of which it may make use.
    #[doc(hidden)]
    fn landing(bytes: usize, _spare: Option<SpareMemory>) -> Box<dyn Landing> {
        Encoded::landing(bytes, decoded::<Self>)
    }

    /// Whether the bytes are all that a value is, so a rank that gives it may keep it instead of a copy.
    #[doc(hidden)]
    const IS_ITS_BYTES: bool = false;

    /// Gives its memory away, if landings of this type can make use of it.
    #[doc(hidden)]
    fn give_memory(&mut self) -> Option<SpareMemory> {
        None
    }
}

/// The smallest memory that is worth keeping, in bytes: allocators keep smaller ones.
pub(crate) const SPARE_MIN: usize = 1 << 16;

/// The memory of a value that is not used any more.
#[doc(hidden)]
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a local world needs no memory"))]
#[derive(Debug)]
pub struct SpareMemory {
    /// A value of the type whose landings can use it.
    pub(super) memory: Box<dyn Any + Send>,
    pub(super) bytes: usize,
}

/// Memory into which a value is received. It does not move.
#[doc(hidden)]
pub trait Landing: Send {
    /// Returns the memory, which may be uninitialised, and its size in bytes.
    fn memory(&mut self) -> (*mut u8, usize);
    /// Returns the value.
    ///
    /// # Safety
    /// All bytes of the memory have been written.
    unsafe fn value(self: Box<Self>) -> Result<Made, BoxError>;
}

/// Bytes that are decoded once they are there.
pub(super) struct Encoded {
    bytes: Vec<u8>,
    decode: fn(&[u8]) -> Result<Made, BoxError>,
}

impl Encoded {
    pub(super) fn landing(bytes: usize, decode: fn(&[u8]) -> Result<Made, BoxError>) -> Box<dyn Landing> {
        Box::new(Self { bytes: vec![0; bytes], decode })
    }
}

impl Landing for Encoded {
    fn memory(&mut self) -> (*mut u8, usize) {
        (self.bytes.as_mut_ptr(), self.bytes.len())
    }

    unsafe fn value(self: Box<Self>) -> Result<Made, BoxError> {
        (self.decode)(&self.bytes)
    }
}

fn decoded<T: Wire>(bytes: &[u8]) -> Result<Made, BoxError> {
    Ok(Box::new(T::from_wire(bytes)?))
}

/// Elements that are received where they stay, in memory that nothing has written before.
struct Elements<T> {
    memory: Vec<T>,
    count: usize,
}

impl<T: Pod + Send + Sync> Landing for Elements<T> {
    fn memory(&mut self) -> (*mut u8, usize) {
        (self.memory.as_mut_ptr().cast(), self.count * size_of::<T>())
    }

    unsafe fn value(mut self: Box<Self>) -> Result<Made, BoxError> {
        // SAFETY: the capacity is at least `count`. The caller promises that all bytes are initialised, and
        // plain old data has a value for any bytes.
        unsafe { self.memory.set_len(self.count) };
        Ok(Box::new(self.memory))
    }
}

/// A landing that keeps something as long as it is used.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a local world needs no memory"))]
pub(super) struct With<K> {
    pub(super) landing: Box<dyn Landing>,
    pub(super) _kept: K,
}

impl<K: Send> Landing for With<K> {
    fn memory(&mut self) -> (*mut u8, usize) {
        self.landing.memory()
    }

    unsafe fn value(self: Box<Self>) -> Result<Made, BoxError> {
        // SAFETY: the caller promises that all bytes have been written.
        unsafe { self.landing.value() }
    }
}

impl<T: Pod + Send + Sync> Wire for Vec<T> {
    const IS_ITS_BYTES: bool = true;

    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(bytemuck::cast_slice(self).into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        let count = check_whole::<T>(bytes.len())?;
        // It divides by the size of an element.
        Ok(if count == 0 { Self::new() } else { bytemuck::pod_collect_to_vec(bytes) })
    }

    fn landing(bytes: usize, spare: Option<SpareMemory>) -> Box<dyn Landing> {
        let Ok(count) = check_whole::<T>(bytes) else { return Encoded::landing(bytes, decoded::<Self>) };
        let spare = spare.and_then(|spare| spare.memory.downcast::<Self>().ok());
        let mut memory = spare.map_or_else(Self::new, |spare| *spare);
        memory.clear();
        memory.reserve_exact(count);
        Box::new(Elements { memory, count })
    }

    fn give_memory(&mut self) -> Option<SpareMemory> {
        let bytes = self.capacity() * size_of::<T>();
        (bytes >= SPARE_MIN).then(|| SpareMemory { memory: Box::new(std::mem::take(self)), bytes })
    }
}

/// Returns how many values of `T` so many bytes are.
fn check_whole<T>(bytes: usize) -> Result<usize, BoxError> {
    match bytes.checked_rem(size_of::<T>()) {
        Some(0) => Ok(bytes / size_of::<T>()),
        None if bytes == 0 => Ok(0),
        _ => Err(misfit::<T>(bytes)),
    }
}

fn misfit<T>(bytes: usize) -> BoxError {
    format!("{bytes} bytes are no values of `{}`: let the sender and the receiver use the same type", type_name::<T>()).into()
}

impl<T: Pod + Send + Sync, const N: usize> Wire for [T; N] {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(bytemuck::cast_slice(self).into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        let elements: Vec<T> = Wire::from_wire(bytes)?;
        elements.try_into().map_err(|_| misfit::<Self>(bytes.len()))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            const BYTES: Option<usize> = Some(size_of::<Self>());

            fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
                Ok(bytemuck::bytes_of(self).into())
            }

            fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
                bytemuck::try_pod_read_unaligned(bytes).map_err(|_| misfit::<Self>(bytes.len()))
            }
        }
    )* };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);

impl Wire for () {
    const BYTES: Option<usize> = Some(0);

    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(Cow::Borrowed(&[]))
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        if bytes.is_empty() { Ok(()) } else { Err(misfit::<Self>(bytes.len())) }
    }
}

impl Wire for bool {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(vec![u8::from(*self)].into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(misfit::<Self>(bytes.len())),
        }
    }
}

impl Wire for String {
    fn to_wire(&self) -> Result<Cow<'_, [u8]>, BoxError> {
        Ok(self.as_bytes().into())
    }

    fn from_wire(bytes: &[u8]) -> Result<Self, BoxError> {
        Ok(str::from_utf8(bytes)?.to_owned())
    }
}

/// How values of one type cross, with the type erased.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a local world needs no bytes"))]
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) of: &'static str,
    pub(crate) id: TypeId,
    pub(crate) bytes: Option<usize>,
    pub(crate) encode: fn(&Shared) -> Result<Cow<'_, [u8]>, BoxError>,
    pub(crate) decode: fn(&[u8]) -> Result<Made, BoxError>,
    pub(crate) landing: fn(usize, Option<SpareMemory>) -> Box<dyn Landing>,
    /// Gives the memory of a value away that has no other owner, if landings can make use of it.
    pub(crate) give_memory: fn(Shared) -> Option<SpareMemory>,
    /// Returns a value that is its bytes and has no other owner, else the value back.
    pub(crate) into_made: fn(Shared) -> Result<Made, Shared>,
}

impl Form {
    pub(crate) fn of<T: Wire>() -> Self {
        Self {
            of: type_name::<T>(),
            id: TypeId::of::<T>(),
            bytes: T::BYTES,
            encode: |value| value.downcast_ref::<T>().expect("the form is that of the value's type").to_wire(),
            decode: decoded::<T>,
            landing: T::landing,
            into_made: |value| if T::IS_ITS_BYTES { into_made::<T>(value) } else { Err(value) },
            give_memory: |mut value| Arc::get_mut(&mut value)?.downcast_mut::<T>()?.give_memory(),
        }
    }

    /// Returns how values of a type cross that is known to this library.
    pub(crate) fn of_known(id: TypeId) -> Option<Self> {
        macro_rules! find {
            ($($known:ty),*) => {
                [$((TypeId::of::<$known>(), Form::of::<$known> as fn() -> Form), (TypeId::of::<Vec<$known>>(), Form::of::<Vec<$known>>)),*]
            };
        }
        let numbers = find!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);
        let others: [(TypeId, fn() -> Form); 3] = [
            (TypeId::of::<()>(), Form::of::<()>),
            (TypeId::of::<bool>(), Form::of::<bool>),
            (TypeId::of::<String>(), Form::of::<String>),
        ];
        let form = numbers.into_iter().chain(others).find(|(known, _)| *known == id)?.1;
        Some(form())
    }
}

fn into_made<T: Data>(value: Shared) -> Result<Made, Shared> {
    let value: Arc<T> = value.downcast().expect("the form is that of the value's type");
    match Arc::try_unwrap(value) {
        Ok(value) => Ok(Box::new(value)),
        Err(value) => Err(value),
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Form").field(&self.of).finish()
    }
}
