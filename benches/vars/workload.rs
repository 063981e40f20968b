//! Streams of operations, as the variables that each writes and reads.

/// A stream of operations.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) vars: usize,
    /// For each operation, the variable that it writes, and the end of its reads in `reads`.
    operations: Vec<(Option<usize>, usize)>,
    /// The reads of all operations in one vector, so that iteration costs nothing that is measured.
    reads: Vec<usize>,
    /// The budget for two workers, in ns.
    budget: Option<u64>,
    /// The pushing task awaits one operation in this many.
    pub(crate) awaited: Option<usize>,
}

impl Workload {
    pub(crate) fn all(operations: usize) -> Vec<Self> {
        let own = |name, vars: usize, budget, operation: &dyn Fn(usize) -> (Option<usize>, usize)| {
            Self::own(name, operations, vars, budget, operation)
        };
        vec![
            own("a chain on one variable", 1, Some(100), &|_| (Some(0), 0)),
            Self::independent(operations),
            own("1 writes : 9 read", 1, None, &|op| ((op % 10 == 0).then_some(0), 0)),
            Self::random(operations / 10),
            Self::awaiting("24 in a chain, and the last awaited", 24, operations / 10),
            Self::awaited(operations / 100),
        ]
    }

    /// Each writes one variable at the most and reads one.
    fn own(
        name: &'static str,
        operations: usize,
        vars: usize,
        budget: Option<u64>,
        operation: &dyn Fn(usize) -> (Option<usize>, usize),
    ) -> Self {
        let (writes, reads): (Vec<_>, Vec<_>) = (0..operations).map(operation).unzip();
        Self { name, vars, operations: writes.into_iter().zip(1..).collect(), reads, budget, awaited: None }
    }

    /// A chain, of which one operation in `every` is awaited.
    fn awaiting(name: &'static str, every: usize, operations: usize) -> Self {
        let operations = (0..operations).map(|op| (Some(0), op + 1)).collect::<Vec<_>>();
        Self { name, vars: 1, reads: vec![0; operations.len()], operations, budget: None, awaited: Some(every) }
    }

    pub(crate) fn awaited(operations: usize) -> Self {
        Self::awaiting("each awaited", 1, operations)
    }

    pub(crate) fn independent(operations: usize) -> Self {
        Self::own("independent variables", operations, 1000, Some(150), &|op| (Some(op % 1000), op % 1000))
    }

    /// Each writes one of 100 variables and reads 2 to 19.
    pub(crate) fn random(operations: usize) -> Self {
        let mut state = 0x5eed_u64;
        let mut below = |n: u64| {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((word ^ (word >> 31)) % n) as usize
        };
        let mut reads = Vec::new();
        let mut operation = || {
            let write = below(100);
            (0..2 + below(18)).for_each(|_| reads.push(below(100)));
            (Some(write), reads.len())
        };
        let operations = (0..operations).map(|_| operation()).collect();
        Self { name: "random, 2 to 19 reads", vars: 100, operations, reads, budget: None, awaited: None }
    }

    /// Returns true if the pushing task awaits that operation.
    pub(crate) fn is_awaited(&self, operation: usize) -> bool {
        self.awaited.is_some_and(|every| (operation + 1).is_multiple_of(every))
    }

    /// Returns true if some operations read several variables.
    pub(crate) fn has_wide(&self) -> bool {
        self.reads.len() > self.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns the write and the reads of each operation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<usize>, &[usize])> {
        let mut begin = 0;
        self.operations.iter().map(move |&(write, end)| (write, &self.reads[std::mem::replace(&mut begin, end)..end]))
    }

    pub(crate) fn budget_ns(&self, workers: usize) -> Option<u64> {
        match workers {
            0 => self.budget.map(|_| 50),
            2 => self.budget,
            _ => None,
        }
    }
}
