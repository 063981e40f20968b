//! Drivers that lack a function: a copy of the file in which a symbol has another name.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{LoadError, file_name};

/// Copies the driver without the symbols.
///
/// The name of a symbol is in the table of dynamic strings, between two zero bytes. Its first letter is
/// changed, so the length and everything else stay the same. The hash table of symbols still has the hash of
/// the old name, which the new name does not match, so neither name is found.
pub(super) fn without(path: &Path, names: &[&str]) -> Result<PathBuf, LoadError> {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let mut file = std::fs::read(path).map_err(|error| LoadError::new(path, error))?;
    let strings = dynamic_strings(&file).and_then(|range| file.get_mut(range));
    let strings = strings.ok_or_else(|| LoadError::new(path, "it is no 64-bit ELF library with dynamic symbols"))?;
    for name in names {
        let text = [b"\0", name.as_bytes(), b"\0"].concat();
        let place = strings.windows(text.len()).position(|at| at == text);
        let place = place.ok_or_else(|| LoadError::new(path, format!("it has no symbol `{name}`")))?;
        strings[place + 1] = b'_';
    }
    // ORDERING: Relaxed: the numbers only have to differ.
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("anabranch-soft-cuda-{}-{number}", std::process::id()));
    let copy = folder.join(file_name(path));
    std::fs::create_dir_all(&folder).map_err(|error| LoadError::new(&folder, error))?;
    std::fs::write(&copy, file).map_err(|error| LoadError::new(&copy, error))?;
    Ok(copy)
}

/// Finds the table of dynamic strings: the one that the section of dynamic symbols is linked to. The offsets
/// are those of `Elf64_Ehdr` and `Elf64_Shdr`.
fn dynamic_strings(file: &[u8]) -> Option<Range<usize>> {
    const DYNAMIC_SYMBOLS: usize = 11;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(file, 0x28, 8)?, number(file, 0x3a, 2)?, number(file, 0x3c, 2)?);
    let section = |index: usize| index.checked_mul(size)?.checked_add(table);
    let symbols = (0..count).filter_map(section).find(|&at| number(file, at + 0x04, 4) == Some(DYNAMIC_SYMBOLS))?;
    let strings = section(number(file, symbols + 0x28, 4)?)?;
    let start = number(file, strings + 0x18, 8)?;
    Some(start..start.checked_add(number(file, strings + 0x20, 8)?)?)
}

/// Reads a little-endian number.
fn number(file: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
}
