//! A hash for small tables and filters.

/// Returns a hash of a number or an address, whose upper bits are the best ones: they depend on all bits of
/// the word. It is multiplied by 2^64 over the golden ratio (Knuth).
#[inline(always)]
pub(super) fn hash(word: usize) -> u64 {
    (word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
