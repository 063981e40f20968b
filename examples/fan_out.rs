//! One value read by many nodes, and many values read by one node: nothing is copied on either side.
//!
//! ```sh
//! cargo run --example fan_out                 # or -- FILE.svg, for a picture of the run
//! ```

use std::sync::Arc;

use anabranch::graph::Each;
use anabranch::{BoxError, Executor, Graph, Timeline, Value, inputs};

/// A text that could not be copied if one wanted to: it has no `Clone`.
struct Book(String);

/// How often each letter comes.
type Counts = [usize; 26];

const CHAPTERS: usize = 8;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut g = Graph::new();
    let book = g.input::<Book>("book");

    // Fan out: every chapter's node gets a reference to the one book.
    let chapters: Vec<Value<Counts>> = (0..CHAPTERS)
        .map(|chapter| g.task(format!("count {chapter}"), &book, move |book: &Book| count_letters(book, chapter)))
        .collect();

    // Fan in: a slice of values is one argument, in the order of the slice.
    let total = g.task("add up", &chapters[..], |chapters: Each<Counts>| {
        chapters.iter().fold([0; 26], |sum: Counts, chapter| std::array::from_fn(|letter| sum[letter] + chapter[letter]))
    });
    g.output("letters", &total);

    let plan = g.compile()?;
    let book = Book("It was the best of times, it was the worst of times. ".repeat(CHAPTERS * 10_000));
    println!("counting the letters of a book of {} kB in {CHAPTERS} nodes", book.0.len() / 1000);
    let timeline = Arc::new(Timeline::new(100));
    let exec = Executor::builder().observer(timeline.clone()).build()?;
    let mut outputs = exec.run(&plan, inputs! { "book" => book }).await?;

    let counts = outputs.take::<Counts>("letters")?;
    let mut letters: Vec<(char, usize)> = ('a'..='z').zip(*counts).collect();
    letters.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (letter, count) in &letters[..5] {
        println!("{letter} {count:>8} {}", "#".repeat(count / 40_000));
    }
    if let Some(file) = std::env::args().nth(1) {
        if file.starts_with('-') {
            return Err(format!("there is no option {file}: give a file for the picture of the run, or nothing").into());
        }
        std::fs::write(&file, timeline.to_svg())
            .map_err(|error| format!("cannot write {file}: {error}; name a file in a folder that exists"))?;
        println!("the picture of the run is {file}: open it in a browser");
    }
    Ok(())
}

fn count_letters(Book(text): &Book, chapter: usize) -> Counts {
    let length = text.len().div_ceil(CHAPTERS);
    let mut counts = [0; 26];
    for byte in text.bytes().skip(chapter * length).take(length).filter(u8::is_ascii_alphabetic) {
        counts[usize::from(byte.to_ascii_lowercase() - b'a')] += 1;
    }
    counts
}
