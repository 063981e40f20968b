//! Reductions that transports do themselves.

use std::any::TypeId;

use crate::scope::{Max, Min, Product, Sum};

/// An element type that transports know. The order is that of the tables of the transports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

/// An operator that transports know, in the order of their tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Sum,
    Product,
    Min,
    Max,
}

impl Element {
    fn of<T: 'static>() -> Option<Self> {
        let known = [
            (TypeId::of::<i8>(), Self::I8),
            (TypeId::of::<i16>(), Self::I16),
            (TypeId::of::<i32>(), Self::I32),
            (TypeId::of::<i64>(), Self::I64),
            (TypeId::of::<u8>(), Self::U8),
            (TypeId::of::<u16>(), Self::U16),
            (TypeId::of::<u32>(), Self::U32),
            (TypeId::of::<u64>(), Self::U64),
            (TypeId::of::<f32>(), Self::F32),
            (TypeId::of::<f64>(), Self::F64),
        ];
        known.into_iter().find(|(id, _)| *id == TypeId::of::<T>()).map(|(_, element)| element)
    }

    /// Returns the size in bytes.
    #[cfg(feature = "mpi")]
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// Returns the reduction of elements `T` by operator `O`, if transports know it. The smallest and the largest
/// float are not among them: transports differ in what they make of NaN.
pub(crate) fn native<T: 'static, O: 'static>() -> Option<(Element, Operation)> {
    let known = [
        (TypeId::of::<Sum>(), Operation::Sum),
        (TypeId::of::<Product>(), Operation::Product),
        (TypeId::of::<Min>(), Operation::Min),
        (TypeId::of::<Max>(), Operation::Max),
    ];
    let element = Element::of::<T>()?;
    let (_, operation) = known.into_iter().find(|(id, _)| *id == TypeId::of::<O>())?;
    let is_float = matches!(element, Element::F32 | Element::F64);
    (!is_float || matches!(operation, Operation::Sum | Operation::Product)).then_some((element, operation))
}
