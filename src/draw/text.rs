//! Text in pictures: its width, and how it is shortened.

/// The width of a character of the pictures' font, in pixels.
pub(super) const CHAR: f64 = 6.3;
/// That of a capital.
const CAPITAL: f64 = 8.0;

pub(super) fn width(text: &str) -> f64 {
    text.chars().map(char_width).sum()
}

fn char_width(char: char) -> f64 {
    if char.is_uppercase() { CAPITAL } else { CHAR }
}

/// Returns the end of a text, with `…` before it, if it is wider than `room` pixels: names of one graph often
/// begin alike. Returns nothing if hardly anything is left.
pub(super) fn shortened(text: &str, room: f64) -> Option<String> {
    if width(text) <= room {
        return Some(text.to_owned());
    }
    let mut left = room - width("…");
    let fits = |char: &char| {
        left -= char_width(*char);
        left >= 0.0
    };
    let kept: Vec<char> = text.chars().rev().take_while(fits).collect();
    (kept.len() >= 2).then(|| format!("…{}", kept.into_iter().rev().collect::<String>()))
}

/// Returns the label of a bar: its name, shortened, and the item behind it, which is not. If hardly anything
/// is left of the name, it is the item alone.
pub(super) fn label(name: &str, item: &str, room: f64) -> Option<String> {
    if item.is_empty() {
        return shortened(name, room);
    }
    let behind = format!(" {item}");
    match shortened(name, room - width(&behind)) {
        Some(name) => Some(name + &behind),
        None => Some(item.to_owned()).filter(|item| width(item) <= room),
    }
}

/// Returns text with what XML would read as its own escaped. Control characters become spaces: XML has no
/// form for them.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.replace(|char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}'), " ")
}

/// Returns a count with its noun.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_from_the_left_and_items_stay() {
        // Seen to fail with names that lose their end.
        let shown = |name: &str, item: &str, chars: f64| label(name, item, chars * CHAR + 0.1);
        assert_eq!(shown("decode", "", 6.0).as_deref(), Some("decode"));
        assert_eq!(shown("layer.3.norm", "", 7.0).as_deref(), Some("…3.norm"));
        assert_eq!(shown("decode", "#3", 6.0).as_deref(), Some("…de #3"));
        assert_eq!(shown("decode", "#3", 3.0).as_deref(), Some("#3"));
        assert_eq!((shown("decode", "#3", 1.0), shown("decode", "", 2.0)), (None, None));
    }
}
