//! `Placement`: streams for work that becomes known step by step, with the fewest waits for its dependencies.
//!
//! A stream does its work in the order of submission, so its tail is ordered after everything that the stream
//! ever waited for. A *clock* stores what precedes an operation: for each stream the last such point. A clock
//! may contain less than the truth: it omits work that is placed and not yet submitted.

use std::ops::Range;

use smallvec::SmallVec;

/// The choice of streams for an engine's kernels. Kernels wait for their dependencies with any choice.
///
/// ```
/// use anabranch::policy::Placement;
/// use anabranch::{Engine, Executor};
/// # use anabranch::Op;
///
/// # futures::executor::block_on(async {
/// // On a GPU, the kernels of this engine run one after the other.
/// let engine = Engine::builder(&Executor::host()?).placement(Placement::Single).build()?;
/// # engine.push(Op::task("start", (), (), || ())).await?;
/// # engine.idle().await?;
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Puts all kernels on one stream of their device, in the order in which they become ready.
    Single,
    /// Puts kernels that read only host values (uploads) on one stream, and all others on another. After
    /// [`PerBackend`](crate::policy::PerBackend).
    PerBackend,
    /// Puts a kernel on the stream of its newest dependency, if no later work was put there. Otherwise it
    /// chooses a stream whose last work precedes the kernel anyway; else a free stream; else the stream with
    /// the least work.
    #[default]
    Online,
}

/// For each stream, the last point that precedes some work.
type Clock = SmallVec<[u64; 8]>;

/// Submitted work, with its place in the order.
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) stream: u32,
    /// The point at its end, on its stream.
    pub(crate) point: u64,
    /// Its number in the order of submission.
    number: u64,
    /// The clock at its end, which includes the work itself.
    after: Clock,
}

/// A dependency of new work.
pub(crate) struct Need<'a> {
    pub(crate) stamp: &'a Stamp,
    /// Whether it has ended, so that no stream needs to wait for it.
    pub(crate) is_over: bool,
}

/// A stream for work that is not submitted yet.
#[must_use = "it counts as the stream's load until it is submitted or withdrawn"]
pub(crate) struct Placed {
    pub(crate) stream: u32,
    /// The needs that the stream must wait for, by their places in the list.
    pub(crate) waits: SmallVec<[usize; 4]>,
    /// The clock of the stream when it was chosen, and the clock after these waits.
    before: Clock,
    after: Clock,
}

/// The state from which streams are chosen.
pub(crate) struct Placer {
    placement: Placement,
    streams: Vec<Stream>,
    submitted: u64,
}

struct Stream {
    /// The point and the number of the last submitted work.
    tail: (u64, u64),
    /// The clock of the tail.
    after: Clock,
    placed: u32,
    at_work: u32,
}

impl Placer {
    pub(crate) fn new(placement: Placement, streams: u32) -> Self {
        let new = || Stream { tail: (0, 0), after: smallvec::smallvec![0; streams as usize], placed: 0, at_work: 0 };
        Self { placement, streams: (0..streams).map(|_| new()).collect(), submitted: 0 }
    }

    /// Chooses one of the streams `among` for work with these dependencies. `is_mixed`: the work reads no
    /// value of the device.
    pub(crate) fn place(&mut self, among: Range<u32>, is_mixed: bool, needs: &[Need<'_>]) -> Placed {
        let stream = match self.placement {
            Placement::Single => among.start,
            Placement::PerBackend => (among.start + u32::from(!is_mixed)).min(among.end - 1),
            Placement::Online => self.choose(among, needs),
        };
        let own = &mut self.streams[stream as usize];
        own.placed += 1;
        let before = own.after.clone();
        let waits = waits(stream, &before, needs);
        let mut after = before.clone();
        // Each need has ended, is waited for, or precedes one that is.
        needs.iter().for_each(|need| join(&mut after, &need.stamp.after));
        Placed { stream, waits, before, after }
    }

    fn choose(&self, among: Range<u32>, needs: &[Need<'_>]) -> u32 {
        let here = needs.iter().filter(|need| among.contains(&need.stamp.stream));
        if let Some(newest) = here.max_by_key(|need| need.stamp.number)
            && self.is_before(newest.stamp.stream, newest)
        {
            return newest.stamp.stream;
        }
        let behind = among.clone().filter(|&stream| needs.iter().any(|need| self.is_before(stream, need)));
        let load = |stream: &u32| self.streams[*stream as usize].placed + self.streams[*stream as usize].at_work;
        let last = behind.max_by_key(|&stream| self.streams[stream as usize].tail.1);
        let free = || among.clone().find(|stream| load(stream) == 0);
        last.or_else(free).or_else(|| among.clone().min_by_key(load)).expect("there is a stream")
    }

    /// Returns whether all work on a stream precedes the end of a need.
    fn is_before(&self, stream: u32, need: &Need<'_>) -> bool {
        let Stream { tail: (point, _), placed, .. } = self.streams[stream as usize];
        placed == 0 && point > 0 && need.stamp.after[stream as usize] >= point
    }

    /// Records that work was submitted, and ends at a point of its stream. `has_waited`: all of its waits
    /// were submitted too.
    pub(crate) fn submitted(&mut self, placed: Placed, point: u64, has_waited: bool) -> Stamp {
        let Placed { stream, before, after, .. } = placed;
        let mut after = if has_waited { after } else { before };
        self.submitted += 1;
        let (number, own) = (self.submitted, &mut self.streams[stream as usize]);
        (own.placed, own.at_work) = (own.placed - 1, own.at_work + 1);
        after[stream as usize] = point;
        join(&mut own.after, &after);
        // Two works on one stream may be submitted in one order, and recorded here in the other.
        own.tail = own.tail.max((point, number));
        Stamp { stream, point, number, after }
    }

    /// Records that work will not be submitted.
    pub(crate) fn withdraw(&mut self, placed: Placed) {
        self.streams[placed.stream as usize].placed -= 1;
    }

    /// Records that submitted work has ended.
    pub(crate) fn end(&mut self, stream: u32) {
        self.streams[stream as usize].at_work -= 1;
    }
}

/// Returns the needs to wait for, on a stream with this clock: for each other stream the newest need, unless
/// the wait for another need implies it.
fn waits(stream: u32, after: &Clock, needs: &[Need<'_>]) -> SmallVec<[usize; 4]> {
    let is_implied = |(place, need): (usize, &Need<'_>)| {
        let (of, point) = (need.stamp.stream as usize, need.stamp.point);
        let implies = |(other_place, other): (usize, &Need<'_>)| {
            let is_same = other.stamp.stream == need.stamp.stream && other.stamp.point == point;
            if is_same { other_place < place } else { other.stamp.after[of] >= point }
        };
        need.is_over || need.stamp.stream == stream || after[of] >= point || needs.iter().enumerate().any(implies)
    };
    needs.iter().enumerate().filter(|&need| !is_implied(need)).map(|(place, _)| place).collect()
}

fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A placer whose streams have consecutive points.
    struct Bench {
        placer: Placer,
        points: Vec<u64>,
        stamps: Vec<Stamp>,
        over: BTreeSet<usize>,
    }

    impl Bench {
        fn new(placement: Placement, streams: u32) -> Self {
            let (placer, points) = (Placer::new(placement, streams), vec![0; streams as usize]);
            Self { placer, points, stamps: Vec::new(), over: BTreeSet::new() }
        }

        fn place(&mut self, needs: &[usize]) -> Placed {
            let needs: Vec<Need<'_>> =
                needs.iter().map(|&need| Need { stamp: &self.stamps[need], is_over: self.over.contains(&need) }).collect();
            self.placer.place(0..self.points.len() as u32, needs.is_empty(), &needs)
        }

        fn submit(&mut self, placed: Placed) {
            let point = &mut self.points[placed.stream as usize];
            *point += 1;
            let stamp = self.placer.submitted(placed, *point, true);
            self.stamps.push(stamp);
        }

        /// Places work and submits it. Returns its stream, and the works that it waits for.
        fn put(&mut self, needs: &[usize]) -> (u32, Vec<usize>) {
            let placed = self.place(needs);
            let put = (placed.stream, placed.waits.iter().map(|&place| needs[place]).collect());
            self.submit(placed);
            put
        }

        fn end(&mut self, work: usize) {
            self.placer.end(self.stamps[work].stream);
            self.over.insert(work);
        }
    }

    /// Seen to fail with the oldest need in place of the newest, and with the tail of any stream in place of
    /// the dependency.
    #[test]
    fn work_goes_on_where_the_newest_it_depends_on_is_the_last() {
        let mut bench = Bench::new(Placement::Online, 4);
        assert_eq!(bench.put(&[]), (0, vec![]));
        assert_eq!(bench.put(&[0]), (0, vec![]), "a chain stays");
        assert_eq!(bench.put(&[0]), (1, vec![0]), "a second reader finds the stream taken");
        assert_eq!(bench.put(&[]), (2, vec![]), "what depends on nothing is free");
        assert_eq!(bench.put(&[1, 2]), (1, vec![1]), "the newest of two is 2");
        assert_eq!(bench.put(&[4, 3]), (1, vec![3]));
        assert_eq!(bench.put(&[0]), (3, vec![0]));
        assert_eq!(bench.put(&[0]), (2, vec![0]), "nothing is free: two have one at work, and 0 has two as 1 has three");
    }

    /// Seen to fail with streams that are chosen only if they are free.
    #[test]
    fn a_stream_whose_last_work_comes_before_is_used_again() {
        let mut bench = Bench::new(Placement::Online, 4);
        assert_eq!([bench.put(&[]), bench.put(&[]), bench.put(&[0, 1])], [(0, vec![]), (1, vec![]), (1, vec![0])]);
        assert_eq!(bench.put(&[2]), (1, vec![]));
        assert_eq!(bench.put(&[2]), (0, vec![2]), "2 came after all of stream 0");
        // 4 is ordered after 2, and so after 0 and 1.
        assert_eq!(bench.put(&[0, 1, 4]), (0, vec![]));
    }

    /// Seen to fail with waits for each of several points of one stream, and with a wait that another one
    /// implies.
    #[test]
    fn of_each_other_stream_only_the_newest_is_waited_for_and_nothing_twice() {
        let mut bench = Bench::new(Placement::Online, 4);
        (0..3).for_each(|_| assert!(bench.put(&[]).1.is_empty()));
        assert_eq!(bench.put(&[0]), (0, vec![]));
        assert_eq!(bench.put(&[1, 0, 3]), (0, vec![1]), "3 is the newest, and 0 is before it on its stream");
        assert_eq!(bench.put(&[0, 2]), (2, vec![0]));
        assert_eq!(bench.put(&[1, 4, 5]), (2, vec![4]), "4 has waited for 1");
        assert_eq!(bench.put(&[1, 4, 6, 6]), (2, vec![]));
        bench.end(4);
        assert_eq!([bench.put(&[4]), bench.put(&[4])], [(0, vec![]), (1, vec![])], "1 came before 4, which is over");
    }

    /// Seen to fail with a stream that counts as free after a submission.
    #[test]
    fn streams_are_taken_up_to_the_limit_and_then_by_load() {
        let mut bench = Bench::new(Placement::Online, 2);
        assert_eq!([(); 5].map(|()| bench.put(&[]).0), [0, 1, 0, 1, 0]);
        [0, 2, 4].into_iter().for_each(|work| bench.end(work));
        assert_eq!([(); 4].map(|()| bench.put(&[]).0), [0, 0, 0, 1]);
        // Placed work counts before it is submitted.
        let placed = [(); 2].map(|()| bench.place(&[]));
        assert_eq!([&placed[0], &placed[1]].map(|placed| placed.stream), [0, 1]);
        placed.into_iter().for_each(|placed| bench.placer.withdraw(placed));
    }

    #[test]
    fn one_stream_needs_no_wait_and_two_take_uploads_apart() {
        let mut single = Bench::new(Placement::Single, 4);
        assert_eq!([single.put(&[]), single.put(&[]), single.put(&[0, 1])], [(0, vec![]), (0, vec![]), (0, vec![])]);
        let mut two = Bench::new(Placement::PerBackend, 4);
        assert_eq!([two.put(&[]), two.put(&[0]), two.put(&[])], [(0, vec![]), (1, vec![0]), (0, vec![])]);
        assert_eq!([two.put(&[1, 2]), two.put(&[0])], [(1, vec![2]), (1, vec![])]);
        let mut one = Bench::new(Placement::PerBackend, 1);
        assert_eq!([one.put(&[]), one.put(&[0])], [(0, vec![]), (0, vec![])]);
    }

    /// Seen to fail with a clock that includes work recorded between placing and submitting: a wait was
    /// missing.
    #[test]
    fn what_is_submitted_in_another_order_than_placed_is_never_taken_for_ordered() {
        let mut bench = Bench::new(Placement::Single, 2);
        let (one, other) = (bench.placer.place(0..1, true, &[]), bench.placer.place(1..2, true, &[]));
        bench.submit(other);
        // Placed on stream 0 before any work there has waited for stream 1.
        let early = bench.placer.place(0..1, true, &[]);
        let late = bench.placer.place(0..1, true, &[Need { stamp: &bench.stamps[0], is_over: false }]);
        assert_eq!(late.waits[..], [0]);
        bench.points[0] = 2;
        // `early` comes first on the stream, at point 2, and is recorded last.
        let late = bench.placer.submitted(late, 3, true);
        let early = bench.placer.submitted(early, 2, true);
        assert_eq!((late.after[1], early.after[1]), (1, 0));
        assert_eq!(bench.placer.streams[0].tail.0, 3);
        bench.placer.withdraw(one);
    }

    /// Seen to fail with a clock that counts a refused wait: over the software driver two operations raced.
    #[test]
    fn a_wait_that_was_refused_is_nobodys_knowledge() {
        let mut bench = Bench::new(Placement::Online, 2);
        assert_eq!([bench.put(&[]).0, bench.put(&[]).0], [0, 1]);
        let refused = bench.place(&[1, 0]);
        assert_eq!((refused.stream, &refused.waits[..]), (1, &[1][..]));
        bench.stamps.push(bench.placer.submitted(refused, 2, false));
        bench.points[1] = 2;
        assert_eq!(bench.put(&[2, 0]), (1, vec![0]));
    }

    /// A second implementation: the predecessors of each work as a set, computed only from the streams and
    /// the waits.
    fn is_right(seed: u64, placement: Placement) {
        let mut state = seed;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let streams = 1 + below(5);
        let mut bench = Bench::new(placement, streams as u32);
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for work in 0..120 {
            let needs: Vec<usize> = (0..below(4)).filter(|_| work > 0).map(|_| work - 1 - below(work.min(12))).collect();
            let tails: Vec<Option<usize>> =
                (0..streams).map(|s| (0..work).rev().find(|&w| bench.stamps[w].stream == s as u32)).collect();
            let wanted = choice(&bench, &before, &tails, &needs, streams);
            let (stream, waits) = bench.put(&needs);
            assert!(placement != Placement::Online || stream as usize == wanted, "work {work} of seed {seed}");
            let closure = |works: &mut dyn Iterator<Item = usize>| -> BTreeSet<usize> {
                works.flat_map(|w| before[w].iter().copied().chain([w])).collect()
            };
            let own = tails[stream as usize];
            let all = closure(&mut own.into_iter().chain(waits.iter().copied()));
            let is_met = |known: &BTreeSet<usize>| needs.iter().all(|need| known.contains(need) || bench.over.contains(need));
            assert!(is_met(&all), "work {work} of seed {seed} is not behind all that it needs");
            for without in &waits {
                let fewer = closure(&mut own.into_iter().chain(waits.iter().copied().filter(|wait| wait != without)));
                assert!(!is_met(&fewer), "work {work} of seed {seed} need not wait for {without}");
            }
            // Ended work precedes all later work, and so do its predecessors.
            let over = needs.iter().copied().filter(|need| bench.over.contains(need));
            before.push(all.union(&closure(&mut over.into_iter())).copied().collect());
            // Works end in an order that streams and waits allow.
            for (ended, first) in before.iter().enumerate() {
                if !bench.over.contains(&ended) && first.is_subset(&bench.over) && below(3) == 0 {
                    bench.end(ended);
                }
            }
        }
    }

    /// Returns the stream that the documented rule chooses.
    fn choice(bench: &Bench, before: &[BTreeSet<usize>], tails: &[Option<usize>], needs: &[usize], streams: usize) -> usize {
        if let Some(&newest) = needs.iter().max()
            && tails.contains(&Some(newest))
        {
            return bench.stamps[newest].stream as usize;
        }
        let is_behind = |tail: usize| needs.iter().any(|&need| need == tail || before[need].contains(&tail));
        let last = tails.iter().flatten().copied().filter(|&tail| is_behind(tail)).max();
        let load =
            |s: &usize| (0..before.len()).filter(|w| bench.stamps[*w].stream as usize == *s && !bench.over.contains(w)).count();
        let free = || (0..streams).find(|s| load(s) == 0);
        last.map(|tail| bench.stamps[tail].stream as usize)
            .or_else(free)
            .or_else(|| (0..streams).min_by_key(load))
            .expect("there is one")
    }

    /// Seen to fail with the oldest of the streams whose work precedes, with waits that ignore each other's
    /// clocks, and with a clock that omits the stream's own work.
    #[test]
    fn random_work_goes_where_the_rule_says_and_waits_for_what_it_must() {
        for seed in 0..60 {
            [Placement::Online, Placement::PerBackend, Placement::Single]
                .into_iter()
                .for_each(|placement| is_right(seed, placement));
        }
    }
}
