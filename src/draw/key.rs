//! What colours mean. What takes the most time has colours of its own, and all else is grey.

use std::collections::HashMap;
use std::fmt::Write;

use super::bar::{Bar, Rim};
use super::text::{counted, escaped, shortened, width};

const COLORS: [&str; 12] = [
    "#8ec9a6", "#f4c875", "#c3a6e0", "#8fbde0", "#f0a898", "#b9cc74", "#e6a9cd", "#86cfcf", "#d9b48a", "#aab6ee", "#e6d56e",
    "#9fc3b0",
];
/// The colour of all else, and of what has no meaning.
const GREY: &str = "#d0d6dc";
/// The widest name in a key, in pixels.
const NAME_MAX: f64 = 170.0;
const BOX: f64 = 11.0;
pub(super) const LINE: f64 = 18.0;
/// The lines of a key.
const LINES_MAX: usize = 3;

pub(crate) struct Key {
    /// By colour.
    names: Vec<String>,
    of: HashMap<String, usize>,
    others: usize,
    rims: Vec<Rim>,
}

impl Key {
    /// Returns the colours for these bars. Those of `fixed` come first, in that order.
    pub(super) fn of<'b>(bars: impl Iterator<Item = &'b Bar>, fixed: &[String]) -> Self {
        let (mut took, mut rims): (HashMap<String, (f64, usize)>, Vec<Rim>) = (HashMap::new(), Vec::new());
        for bar in bars {
            let place = took.len();
            took.entry(bar.colored_by.clone()).or_insert((0.0, place)).0 += bar.end - bar.start;
            rims.push(bar.rim);
        }
        let place = |name: &String| fixed.iter().position(|fixed| fixed == name);
        let mut names: Vec<(String, f64, usize)> = took.into_iter().map(|(name, (took, place))| (name, took, place)).collect();
        names.sort_by(|(one, took, at), (other, took_too, at_too)| {
            let fixed = |name| place(name).unwrap_or(usize::MAX);
            fixed(one).cmp(&fixed(other)).then(took_too.total_cmp(took)).then(at.cmp(at_too))
        });
        let others = names.len().saturating_sub(COLORS.len());
        names.truncate(COLORS.len());
        // In the order in which they come first, which is that of the picture.
        names.sort_by_key(|(name, _, at)| (place(name).unwrap_or(usize::MAX), *at));
        let names: Vec<String> = names.into_iter().map(|(name, ..)| name).collect();
        rims.sort_unstable();
        rims.dedup();
        let of = names.iter().cloned().zip(0..).collect();
        Self { names, of, others, rims }
    }

    pub(super) fn color_of(&self, colored_by: &str) -> &'static str {
        self.place_of(colored_by).map_or(GREY, |place| COLORS[place])
    }

    /// Returns the place of a colour, in the order of the key; none for grey.
    pub(super) fn place_of(&self, colored_by: &str) -> Option<usize> {
        self.of.get(colored_by).copied()
    }

    /// Returns the colours, and grey behind them.
    pub(super) fn colors(&self) -> impl Iterator<Item = &'static str> {
        COLORS[..self.names.len()].iter().copied().chain([GREY])
    }

    /// Returns its entries: how they are filled, and what they say.
    fn entries(&self) -> Vec<(String, String)> {
        let names = self.names.iter().zip(COLORS).map(|(name, color)| (color.to_owned(), name.clone()));
        let others = (self.others > 0).then(|| (GREY.to_owned(), format!("… and {}", counted(self.others, "more name"))));
        let rims = Rim::ALL.into_iter().filter(|rim| self.rims.contains(rim)).map(|rim| {
            let (stroke, _) = rim.stroke();
            (format!("none\" stroke=\"{stroke}\" stroke-width=\"2"), rim.name().to_owned())
        });
        names.chain(others).chain(rims).collect()
    }

    /// Returns its entries with their places, in lines that are `room` pixels wide.
    fn placed(&self, room: f64) -> Vec<(f64, usize, String, String)> {
        let (mut x, mut line, mut placed) = (0.0, 0, Vec::new());
        for (fill, name) in self.entries() {
            let name = shortened(&name, NAME_MAX).unwrap_or_default();
            let wide = BOX + 5.0 + width(&name) + 16.0;
            if x > 0.0 && x + wide > room {
                (x, line) = (0.0, line + 1);
            }
            if line == LINES_MAX {
                break;
            }
            placed.push((x, line, fill, name));
            x += wide;
        }
        placed
    }

    /// Returns how many lines it takes.
    pub(super) fn lines(&self, room: f64) -> usize {
        self.placed(room).last().map_or(0, |(_, line, ..)| line + 1)
    }

    pub(super) fn draw(&self, (left, top): (f64, f64), room: f64, out: &mut String) {
        for (x, line, fill, name) in self.placed(room) {
            let (x, y) = (left + x, top + LINE * line as f64);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX}\" height=\"{BOX}\" rx=\"2\" fill=\"{fill}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + BOX + 5.0,
                y + 9.5,
                escaped(&name),
            );
        }
    }
}

/// Returns a name with `#` for each number in it: names that differ in numbers only have one colour.
pub(super) fn family(name: &str) -> String {
    let mut family = String::with_capacity(name.len());
    for char in name.chars() {
        match char.is_ascii_digit() {
            true if family.ends_with('#') => {}
            true => family.push('#'),
            false => family.push(char),
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_numbers_share_a_colour_and_what_takes_little_time_is_grey() {
        // Seen to fail without families, and with the first names instead of the dearest.
        let bars: Vec<Bar> =
            (0..40).map(|at| Bar::new(0, format!("n{}", (b'a' + at % 26) as char), 0.0, f64::from(at))).collect();
        let convs = (0..5).map(|at| Bar::new(0, format!("conv {at}"), 0.0, 100.0));
        let all: Vec<Bar> = bars.into_iter().chain(convs).collect();
        let key = Key::of(all.iter(), &[]);
        assert_eq!((key.color_of("conv #"), key.names.len(), key.others), (COLORS[11], 12, 15));
        assert_eq!(key.color_of("na"), GREY);
        assert!(key.entries().iter().any(|(_, name)| name == "… and 15 more names"));
    }

    #[test]
    fn the_key_has_the_rims_that_there_are() {
        let mut bar = Bar::new(0, "a", 0.0, 1.0);
        bar.rim = Rim::Failed;
        let names: Vec<String> = Key::of([bar].iter(), &[]).entries().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["a", "failed"]);
    }
}
