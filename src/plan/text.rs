//! Text that several reports share.

/// Returns a number of bytes in the largest unit in which it is at least one.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None if bytes == 1 => "1 byte".into(),
        None => format!("{bytes} bytes"),
    }
}

/// Returns a name on one line: control characters become spaces.
pub(crate) fn printable(name: &str) -> String {
    name.replace(char::is_control, " ")
}
