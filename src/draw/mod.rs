//! PICTURES: what happens when, as SVG. All pictures of the library have one form: a title, what the colours
//! mean, the load over the whole time if there is much to show, and rows of bars over time.
//!
//! ```text
//!  Picture ── title, note, key
//!    Panel ── title, counts, rows, bars, arrows         layout: lanes of rows, the window, the rows left out
//!      Bar ── row, times, name, colour, rim             `draw`: SVG, with texts under the pointer
//! ```
//!
//! Lives here: [`Picture`] and its parts, their layout, the SVG. Never here: where the bars come from.

mod band;
mod bar;
mod key;
mod layout;
mod panel;
mod picture;
mod scale;
mod text;
mod time_unit;

pub(crate) use bar::{Bar, Rim};
pub(crate) use panel::{Arrow, Mark, Panel, Row};
pub(crate) use picture::Picture;
pub(crate) use scale::Axis;
pub(crate) use text::counted;
pub use time_unit::TimeUnit;
pub(crate) use time_unit::time;
