//! The choice of the next node or operation where several are possible: the first, one drawn from a seed, or
//! one that is replayed. The same order gives the same choices on every machine.

/// How the simulated device chooses where several nodes could take a free slot.
///
/// ```
/// use anabranch::sim::{Order, Simulation};
/// # use anabranch::Graph;
/// # let mut g = Graph::new();
/// # let (a, b) = (g.task("a", (), || 1), g.task("b", (), || 2));
/// # g.output("a", &a);
/// # g.output("b", &b);
/// let plan = g.compile()?;
/// let any = Simulation::new(plan.schedule()).order(Order::Seeded(7)).run()?;
/// let same = Simulation::new(plan.schedule()).order(Order::Replay(any.choices().to_vec())).run()?;
/// assert_eq!(any.choices(), same.choices());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// The node that comes first in the schedule's order.
    #[default]
    InOrder,
    /// Any node, drawn from this seed. The same seed gives the same order on every machine.
    Seeded(u64),
    /// The choices of an earlier simulation: see [`SimLog::choices`](crate::sim::SimLog::choices). After the
    /// last choice, the first operation is taken. A choice that is out of range is an error of the
    /// simulation, of the run, or of [`Engine::idle`](crate::Engine::idle). Unused choices are an error of a
    /// simulation; an executor keeps them for its next run.
    Replay(Vec<u32>),
}

/// Steele, Lea and Flood's SplitMix64 ("Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    /// Returns true with this probability.
    pub(crate) fn is_hit(&mut self, probability: f64) -> bool {
        // 53 bits: as many as a double represents exactly.
        ((self.word() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}

/// Returns the choices of the order that follows the one in which these were made: the last choice that has
/// another alternative takes it, and all later choices start again. Returns None if that was the last order.
pub(crate) fn next_order(made: &[(u32, u32)]) -> Option<Vec<u32>> {
    let last = made.iter().rposition(|(choice, count)| choice + 1 < *count)?;
    let mut choices: Vec<u32> = made[..=last].iter().map(|choice| choice.0).collect();
    choices[last] += 1;
    Some(choices)
}

/// Makes choices and records them.
pub(crate) struct Chooser {
    order: Order,
    draw: Draw,
    /// Each choice: its number, and the number of alternatives.
    pub(crate) made: Vec<(u32, u32)>,
    /// The error text for the first choice to replay that was out of range.
    pub(crate) misfit: Option<String>,
}

impl Chooser {
    pub(crate) fn new(order: Order) -> Self {
        let seed = if let Order::Seeded(seed) = order { seed } else { 0 };
        Self { order, draw: Draw(seed), made: Vec::new(), misfit: None }
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.order == Order::InOrder
    }

    /// Returns the error text for choices that did not fit, once all choices are made.
    pub(crate) fn misfit_at_end(&self) -> Option<String> {
        let (made, given) = (self.made.len(), if let Order::Replay(choices) = &self.order { choices.len() } else { 0 });
        let is_left = given > made;
        let left = || {
            format!(
                "{given} choices were given to replay, and {made} were possible: give as many as a simulation with a seed printed"
            )
        };
        self.misfit.clone().or_else(|| is_left.then(left))
    }

    /// Returns a number below `count`, which is at least 1.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let choice = match &self.order {
            Order::InOrder => 0,
            Order::Seeded(_) => self.draw.below(count),
            Order::Replay(choices) => match choices.get(self.made.len()).map_or(0, |&choice| choice as usize) {
                choice if choice < count => choice,
                choice => {
                    let place = self.made.len();
                    self.misfit.get_or_insert_with(|| {
                        format!(
                            "choice number {place} to replay, counted from 0, is {choice}, and there are {count}: 0 to {}",
                            count - 1
                        )
                    });
                    count - 1
                }
            },
        };
        self.made.push((choice as u32, count as u32));
        choice
    }
}
