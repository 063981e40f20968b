//! A decoder's loop: every token is the call of a graph, what comes next depends on the token, and an end
//! token ends it.
//!
//! ```sh
//! cargo run --example sampling                # or -- SEED, for the same text again
//! ```
//!
//! The model is a table of which letter follows which four. A letter goes on the word; a full stop cools the
//! model down, so that each sentence is calmer than the one before; and where a word ends, the flow has it
//! looked up, but waits for that only at the end.

use std::collections::{BTreeMap, BTreeSet};

use anabranch::{BoxError, Executor, Flow, Function, Graph, Result, Value, take};

/// Letters that the next one depends on.
const ORDER: usize = 4;
/// Of so many letters the next is chosen.
const TOP: usize = 4;
const END: char = '\n';

/// How often each letter follows each four, and the words that there are.
struct Model {
    next: BTreeMap<String, BTreeMap<char, u32>>,
    words: BTreeSet<&'static str>,
}

type Logits = Vec<(char, f64)>;
type NextToken = Function<(Value<Model>, Value<String>, Value<f64>, Value<f64>), Value<char>>;

/// What was drawn.
#[derive(Debug, PartialEq)]
struct Sample {
    text: String,
    words: usize,
    /// Those of its words that are not the model's.
    invented: BTreeSet<String>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let seed = std::env::args()
        .nth(1)
        .map_or_else(|| Ok(fastrand::u64(..1000)), |seed| seed.parse())
        .map_err(|_| "the seed must be a whole number")?;
    let Sample { text, words, invented } = sample(&Executor::host()?, seed, 600).await?;
    println!("seed {seed}, {} letters, {words} words:\n\n{}\n", text.chars().count(), wrapped(&text, 100));
    println!("words that nobody wrote: {}", Vec::from_iter(invented).join(", "));
    Ok(())
}

async fn sample(exec: &Executor, seed: u64, length: usize) -> Result<Sample> {
    let (next_token, mut dice) = (next_token()?, fastrand::Rng::with_seed(seed));
    let flow = exec.flow(async |f: &Flow| {
        let (model, mut temperature) = (f.value("model", Model::of(TEXT)), f.value("temperature", 2.0));
        let mut context = f.value("context", String::from_iter([END; ORDER]));
        let (mut text, mut word, mut lookups) = (String::new(), String::new(), Vec::new());
        for _ in 0..length {
            let token = f.call(&next_token, (&model, &context, &temperature, &f.value("dice", dice.f64())));
            context = f.task("shift", (take(&context), &token), shift);
            let letter = *f.get(&token).await?;
            match letter {
                END => break,
                '.' => temperature = f.task("cool", &temperature, |temperature: &f64| temperature * 0.85),
                _ if letter.is_alphabetic() => word.push(letter),
                _ => {}
            }
            text.push(letter);
            if !letter.is_alphabetic() && !word.is_empty() {
                // Nobody waits for it here: the next letters are drawn meanwhile.
                let word = f.value("word", std::mem::take(&mut word));
                lookups.push(f.task("look up", (take(&word), &model), look_up));
            }
        }
        let (words, mut invented) = (lookups.len(), BTreeSet::new());
        for lookup in &lookups {
            invented.extend(f.get(lookup).await?.as_ref().clone());
        }
        Ok(Sample { text, words, invented })
    });
    flow.await
}

/// The graph of a token: from the model, the last letters, the temperature and a random number in 0..1.
fn next_token() -> Result<NextToken> {
    Function::new("next token", |g: &mut Graph, (model, context, temperature, dice)| {
        let logits = g.task("logits", (&model, &context), Model::logits);
        let top = g.task("top", take(&logits), |mut logits: Logits| {
            logits.sort_by(|a, b| b.1.total_cmp(&a.1));
            logits.truncate(TOP);
            logits
        });
        let weights = g.task("weights", (take(&top), &temperature), |logits: Logits, temperature: &f64| {
            logits.into_iter().map(|(letter, logit)| (letter, (logit / temperature).exp())).collect::<Logits>()
        });
        g.task("draw", (&weights, &dice), |weights: &Logits, dice: &f64| {
            let mut left = dice * weights.iter().map(|(_, weight)| weight).sum::<f64>();
            let drawn = weights.iter().find(|(_, weight)| {
                left -= weight;
                left < 0.0
            });
            drawn.map_or(END, |(letter, _)| *letter)
        })
    })
}

fn shift(mut context: String, token: &char) -> String {
    context.remove(0);
    context.push(*token);
    context
}

/// Returns the word if it is not the model's.
fn look_up(word: String, model: &Model) -> Option<String> {
    (!model.words.contains(&*word)).then_some(word)
}

impl Model {
    fn of(text: &'static str) -> Self {
        let mut next: BTreeMap<String, BTreeMap<char, u32>> = BTreeMap::new();
        for paragraph in text.lines() {
            let letters: Vec<char> = [END; ORDER].into_iter().chain(paragraph.chars()).chain([END]).collect();
            for window in letters.windows(ORDER + 1) {
                *next.entry(window[..ORDER].iter().collect()).or_default().entry(window[ORDER]).or_default() += 1;
            }
        }
        Self { next, words: text.split(|letter: char| !letter.is_alphabetic()).collect() }
    }

    fn logits(&self, context: &String) -> Logits {
        let next = self.next.get(context).into_iter().flatten();
        next.map(|(letter, times)| (*letter, f64::from(*times).ln())).collect()
    }
}

fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < columns => line.extend([if line.is_empty() { "" } else { " " }, word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// From Kenneth Grahame, The Wind in the Willows, 1908.
const TEXT: &str = "\
The Mole had been working very hard all the morning, spring-cleaning his little home. First with brooms, then with dusters; \
then on ladders and steps and chairs, with a brush and a pail of whitewash; till he had dust in his throat and eyes, and \
splashes of whitewash all over his black fur, and an aching back and weary arms. Spring was moving in the air above and in \
the earth below and around him, penetrating even his dark and lowly little house with its spirit of divine discontent and \
longing. It was small wonder, then, that he suddenly flung down his brush on the floor and bolted out of the house without \
even waiting to put on his coat.
He thought his happiness was complete when, as he meandered aimlessly along, suddenly he stood by the edge of a full-fed \
river. Never in his life had he seen a river before, this sleek, sinuous, full-bodied animal, chasing and chuckling, gripping \
things with a gurgle and leaving them with a laugh, to fling itself on fresh playmates that shook themselves free, and were \
caught and held again. All was a-shake and a-shiver, glints and gleams and sparkles, rustle and swirl, chatter and bubble. \
The Mole was bewitched, entranced, fascinated. By the side of the river he trotted as one trots, when very small, by the side \
of a man who holds one spell-bound by exciting stories; and when tired at last, he sat on the bank, while the river still \
chattered on to him, a babbling procession of the best stories in the world, sent from the heart of the earth to be told at \
last to the insatiable sea.
";

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_text_everywhere() -> Result<()> {
        let first = block_on(sample(&Executor::inline(), 2, 200))?;
        let hosts = [1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..20).map(|seed| Ok(Executor::sim(seed)))) {
            assert_eq!(block_on(sample(&exec?, 2, 200))?, first);
        }
        Ok(())
    }

    #[test]
    fn it_ends_at_an_end_token_or_at_the_length() -> Result<()> {
        let exec = Executor::inline();
        for seed in 0..10 {
            let text = block_on(sample(&exec, seed, 600))?.text;
            assert!(text.chars().count() == 600 || text.ends_with("coat.") || text.ends_with("sea."));
        }
        Ok(())
    }
}
