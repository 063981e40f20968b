//! Reductions, in the order of the ranks.

/// The numbers that can be combined.
trait Number: Copy + PartialOrd {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, into: &mut Vec<u8>);
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
}

macro_rules! number {
    ($number:ty, $add:expr, $multiply:expr) => {
        impl Number for $number {
            const BYTES: usize = size_of::<$number>();

            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; Self::BYTES];
                own.copy_from_slice(bytes);
                Self::from_ne_bytes(own)
            }

            fn write(self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_ne_bytes());
            }

            fn add(self, other: Self) -> Self {
                $add(self, other)
            }

            fn multiply(self, other: Self) -> Self {
                $multiply(self, other)
            }
        }
    };
}

number!(i8, i8::wrapping_add, i8::wrapping_mul);
number!(u8, u8::wrapping_add, u8::wrapping_mul);
number!(i32, i32::wrapping_add, i32::wrapping_mul);
number!(u32, u32::wrapping_add, u32::wrapping_mul);
number!(i64, i64::wrapping_add, i64::wrapping_mul);
number!(u64, u64::wrapping_add, u64::wrapping_mul);
number!(f32, std::ops::Add::add, std::ops::Mul::mul);
number!(f64, std::ops::Add::add, std::ops::Mul::mul);

/// Returns the size of a type by its number in NCCL. None if this library does not have it.
pub(crate) fn bytes_of(of: i32) -> Option<usize> {
    match of {
        0 | 1 => Some(1),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        _ => None,
    }
}

/// Combines the bytes of all ranks, of a type and by an operator that were checked.
pub(crate) fn combined(of: i32, by: i32, all: &[Vec<u8>]) -> Vec<u8> {
    match of {
        0 => reduce::<i8>(by, all),
        1 => reduce::<u8>(by, all),
        2 => reduce::<i32>(by, all),
        3 => reduce::<u32>(by, all),
        4 => reduce::<i64>(by, all),
        5 => reduce::<u64>(by, all),
        7 => reduce::<f32>(by, all),
        _ => reduce::<f64>(by, all),
    }
}

fn reduce<T: Number>(by: i32, all: &[Vec<u8>]) -> Vec<u8> {
    let combine = |before: T, behind: T| match by {
        0 => before.add(behind),
        1 => before.multiply(behind),
        2 => {
            if behind > before {
                behind
            } else {
                before
            }
        }
        _ => {
            if behind < before {
                behind
            } else {
                before
            }
        }
    };
    let mut result = Vec::new();
    for at in (0..all[0].len()).step_by(T::BYTES) {
        let values = all.iter().map(|bytes| T::read(&bytes[at..][..T::BYTES]));
        values.reduce(combine).into_iter().for_each(|value| value.write(&mut result));
    }
    result
}
