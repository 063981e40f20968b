//! A hyperepoch in virtual time: when each runnable of each frame runs, on which lane.
//!
//! A frame of an epoch begins when its time has come and the frame before it has ended. A runnable is ready
//! when its predecessors in the frame have ended and its pass has all its mutexes. Of the ready runnables of
//! an engine, the one with the longest path to the end of its frame starts first, on the free lane with the
//! lowest number. Mutexes are taken in the order of their numbers, so no two passes wait for each other.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::order::topological;
use super::schedule::{EngineId, Epoch, Hyperepoch, RunnableId};
use crate::error::{Kind, Result};
use crate::name::Name;

/// The most runnables that one simulation runs.
const RUNS_MAX: usize = 1 << 20;

/// What happened in one period of a hyperepoch.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let log = app.schedule(None)?.hyperepochs[0].simulate()?;
/// assert!(log.fits());
/// assert_eq!((log.length_us, log.period_us), (7_100.0, 10_000.0));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HyperepochLog {
    /// When each runnable ran, in the order of their starts.
    pub spans: Vec<RunnableSpan>,
    /// When the last one ended, in microseconds.
    pub length_us: f64,
    /// The longest path of dependencies in one frame, in microseconds.
    pub critical_path_us: f64,
    /// The period of the hyperepoch, in microseconds.
    pub period_us: f64,
    /// How busy each engine was.
    pub engines: Vec<EngineLoad>,
}

/// When a runnable ran, in microseconds from the start of the hyperepoch.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let hyperepoch = &app.schedule(None)?.hyperepochs[0];
/// for span in hyperepoch.simulate()?.spans {
///     let runnable = &hyperepoch.epochs[span.epoch as usize].runnables[span.runnable.index()];
///     println!("{}: {} to {} us on lane {}", runnable.name, span.start_us, span.end_us, span.lane);
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct RunnableSpan {
    /// The position of its epoch.
    pub epoch: u32,
    /// The frame, from 0.
    pub frame: u32,
    /// The runnable.
    pub runnable: RunnableId,
    /// What it occupied.
    pub engine: EngineId,
    /// The lane of the engine, from 0.
    pub lane: u32,
    /// When it began.
    pub start_us: f64,
    /// When it had ended.
    pub end_us: f64,
}

/// How busy an engine was.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let log = app.schedule(None)?.hyperepochs[0].simulate()?;
/// let busiest = log.engines.iter().max_by(|a, b| a.share.total_cmp(&b.share));
/// assert!(busiest.is_some_and(|engine| engine.name == "machine0.dGPU" && engine.share == 0.5));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct EngineLoad {
    /// Its name.
    pub name: Name,
    /// How many runnables it can run at once.
    pub lanes: u32,
    /// The time of all its runnables, in microseconds.
    pub busy_us: f64,
    /// The same as a share of the period and of all lanes; more than 1 if the period is too short.
    pub share: f64,
    /// The shortest length that its runnables allow: their time by the number of lanes, in microseconds.
    pub bound_us: f64,
}

impl HyperepochLog {
    /// Returns true if it ends within its period.
    pub fn fits(&self) -> bool {
        self.length_us <= self.period_us
    }
}

impl Hyperepoch {
    /// Runs the first period. The first component of each alias group runs in the first frame.
    ///
    /// # Errors
    ///
    /// Fails if that were more than 2^20 runnables.
    pub fn simulate(&self) -> Result<HyperepochLog> {
        self.simulate_period(0)
    }

    /// Runs one period, counted from 0. Periods differ only in the turns of alias groups, which go on from
    /// period to period.
    ///
    /// # Errors
    ///
    /// As for [`Hyperepoch::simulate`].
    pub fn simulate_period(&self, period: u32) -> Result<HyperepochLog> {
        let runs = Runs::new(self, period)?;
        let spans = Machine::new(self, runs).run();
        let ends = spans.iter().map(|span| span.end_us);
        let period_us = self.period_ns as f64 / 1e3;
        let mut busy = vec![0.0; self.engines.len()];
        spans.iter().for_each(|span| busy[span.engine.index()] += span.end_us - span.start_us);
        let engines = self.engines.iter().zip(busy).map(|(engine, busy_us)| {
            let bound_us = busy_us / f64::from(engine.lanes);
            EngineLoad { name: engine.name.clone(), lanes: engine.lanes, busy_us, share: bound_us / period_us, bound_us }
        });
        Ok(HyperepochLog {
            length_us: ends.fold(0.0, f64::max),
            critical_path_us: self
                .epochs
                .iter()
                .map(|epoch| ranks_ns(epoch).into_iter().fold(0.0, f64::max) / 1e3)
                .fold(0.0, f64::max),
            period_us,
            engines: engines.collect(),
            spans,
        })
    }
}

/// Returns the length of the longest path from each runnable to the end of its frame, its own cost included.
fn ranks_ns(epoch: &Epoch) -> Vec<f64> {
    let edges = epoch.edges();
    let mut next = vec![Vec::new(); epoch.runnables.len()];
    edges.iter().for_each(|&(source, target)| next[source as usize].push(target as usize));
    let mut ranks = vec![0.0; epoch.runnables.len()];
    for &node in topological(ranks.len(), &edges).iter().rev() {
        let node = node as usize;
        let after = next[node].iter().map(|&target| ranks[target]).fold(0.0, f64::max);
        ranks[node] = epoch.runnables[node].cost_ns + after;
    }
    ranks
}

/// One runnable in one frame.
struct Run {
    epoch: u32,
    frame: u32,
    runnable: RunnableId,
    rank_ns: f64,
    /// How many predecessors have not ended.
    waits: u32,
    next: Vec<u32>,
    /// The run that ends the pass, at which the mutexes are released.
    is_last: bool,
    /// How many of the mutexes its pass has.
    taken: usize,
}

/// All runs, frame by frame.
struct Runs {
    all: Vec<Run>,
    /// For each epoch, the first run of each frame; and the end.
    frames: Vec<Vec<u32>>,
}

impl Runs {
    fn new(hyperepoch: &Hyperepoch, period: u32) -> Result<Self> {
        let count: u64 =
            hyperepoch.epochs.iter().map(|epoch| u64::from(epoch.frames) * epoch.runnables.len().max(1) as u64).sum();
        if count > RUNS_MAX as u64 {
            let what = format!("the number of runnables in one period of hyperepoch '{}'", hyperepoch.name);
            return Err(Kind::Limit { what, got: count as usize, limit: RUNS_MAX }.into());
        }
        let mut runs = Self { all: Vec::new(), frames: Vec::new() };
        for (epoch, number) in hyperepoch.epochs.iter().zip(0..) {
            let ranks = ranks_ns(epoch);
            let mut frames = vec![runs.all.len() as u32];
            for frame in 0..epoch.frames {
                let turn = u64::from(period) * u64::from(epoch.frames) + u64::from(frame);
                runs.add_frame(epoch, number, frame, turn, &ranks);
                frames.push(runs.all.len() as u32);
            }
            runs.frames.push(frames);
        }
        Ok(runs)
    }

    fn add_frame(&mut self, epoch: &Epoch, number: u32, frame: u32, turn: u64, ranks: &[f64]) {
        let mut run_of: Vec<Option<u32>> = vec![None; epoch.runnables.len()];
        for (index, runnable) in epoch.runnables.iter().enumerate() {
            let is_on = runnable.turn.is_none_or(|(group, own)| {
                let members = epoch.alias_groups[group as usize].components.len().max(1);
                turn % members as u64 == u64::from(own)
            });
            if !is_on {
                continue;
            }
            run_of[index] = Some(self.all.len() as u32);
            let is_last = epoch.runnables.get(index + 1).is_none_or(|other| other.pass != runnable.pass);
            let runnable = RunnableId(index as u32);
            let (rank_ns, waits, next, taken) = (ranks[index], 0, Vec::new(), 0);
            self.all.push(Run { epoch: number, frame, runnable, rank_ns, waits, next, is_last, taken });
        }
        for dependency in &epoch.dependencies {
            let ends = [dependency.source, dependency.target].map(|end| run_of[end.index()]);
            if let [Some(source), Some(target)] = ends {
                self.all[source as usize].next.push(target);
                self.all[target as usize].waits += 1;
            }
        }
    }
}

/// Something that happens at a time; of two at one time, the one that was added first.
#[derive(PartialEq)]
struct Event {
    at_ns: f64,
    number: u64,
    what: What,
}

#[derive(PartialEq)]
enum What {
    Release { epoch: u32, frame: u32 },
    End { run: u32, lane: u32 },
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_ns.total_cmp(&other.at_ns).then(self.number.cmp(&other.number))
    }
}

/// A run that waits for a lane or a mutex: the longest rank first, then the first run.
#[derive(PartialEq)]
struct Waiting {
    rank_ns: f64,
    run: Reverse<u32>,
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank_ns.total_cmp(&other.rank_ns).then(self.run.cmp(&other.run))
    }
}

struct Machine<'a> {
    hyperepoch: &'a Hyperepoch,
    runs: Runs,
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
    /// For each engine: the runs that are ready, and the free lanes.
    ready: Vec<BinaryHeap<Waiting>>,
    lanes: Vec<BinaryHeap<Reverse<u32>>>,
    /// For each mutex: whether a pass has it, and the runs that wait for it.
    mutexes: Vec<(bool, BinaryHeap<Waiting>)>,
    /// For each epoch: how many runs of its frame have not ended.
    left: Vec<u32>,
    spans: Vec<RunnableSpan>,
}

impl<'a> Machine<'a> {
    fn new(hyperepoch: &'a Hyperepoch, runs: Runs) -> Self {
        let engines = &hyperepoch.engines;
        let mut machine = Self {
            hyperepoch,
            runs,
            events: BinaryHeap::new(),
            count: 0,
            ready: engines.iter().map(|_| BinaryHeap::new()).collect(),
            lanes: engines.iter().map(|engine| (0..engine.lanes).map(Reverse).collect()).collect(),
            mutexes: hyperepoch.mutexes.iter().map(|_| (false, BinaryHeap::new())).collect(),
            left: vec![0; hyperepoch.epochs.len()],
            spans: Vec::new(),
        };
        (0..hyperepoch.epochs.len() as u32).for_each(|epoch| machine.add_event(0.0, What::Release { epoch, frame: 0 }));
        machine
    }

    fn run(mut self) -> Vec<RunnableSpan> {
        while let Some(Reverse(Event { at_ns, what, .. })) = self.events.pop() {
            match what {
                What::Release { epoch, frame } => self.release(epoch, frame, at_ns),
                What::End { run, lane } => self.end(run, lane, at_ns),
            }
            // All that happens at one time is known before a lane is given away.
            if self.events.peek().is_none_or(|Reverse(next)| next.at_ns > at_ns) {
                self.start(at_ns);
            }
        }
        self.spans
    }

    fn add_event(&mut self, at_ns: f64, what: What) {
        self.count += 1;
        self.events.push(Reverse(Event { at_ns, number: self.count, what }));
    }

    fn release(&mut self, epoch: u32, frame: u32, now_ns: f64) {
        let frames = &self.runs.frames[epoch as usize];
        let range = frames[frame as usize]..frames[frame as usize + 1];
        self.left[epoch as usize] = range.len() as u32;
        if range.is_empty() {
            return self.end_frame(epoch, frame, now_ns);
        }
        let roots: Vec<u32> = range.filter(|&run| self.runs.all[run as usize].waits == 0).collect();
        roots.into_iter().for_each(|run| self.take_mutexes(run));
    }

    fn end_frame(&mut self, epoch: u32, frame: u32, now_ns: f64) {
        let of = &self.hyperepoch.epochs[epoch as usize];
        if frame + 1 < of.frames {
            let due_ns = of.period_ns as f64 * f64::from(frame + 1);
            self.add_event(due_ns.max(now_ns), What::Release { epoch, frame: frame + 1 });
        }
    }

    fn held(&self, run: u32) -> &'a [u32] {
        let run = &self.runs.all[run as usize];
        let runnable = &self.hyperepoch.epochs[run.epoch as usize].runnables[run.runnable.index()];
        // The submittee has those of its submitter.
        if runnable.role == super::schedule::Role::Submittee { &[] } else { &runnable.mutexes }
    }

    fn waiting(&self, run: u32) -> Waiting {
        Waiting { rank_ns: self.runs.all[run as usize].rank_ns, run: Reverse(run) }
    }

    /// Takes the mutexes of a run that has no predecessors left; with the last one it is ready.
    fn take_mutexes(&mut self, run: u32) {
        let held = self.held(run);
        while let Some(&mutex) = held.get(self.runs.all[run as usize].taken) {
            if self.mutexes[mutex as usize].0 {
                let waiting = self.waiting(run);
                return self.mutexes[mutex as usize].1.push(waiting);
            }
            self.mutexes[mutex as usize].0 = true;
            self.runs.all[run as usize].taken += 1;
        }
        let engine = self.engine(run);
        let waiting = self.waiting(run);
        self.ready[engine.index()].push(waiting);
    }

    fn engine(&self, run: u32) -> EngineId {
        let run = &self.runs.all[run as usize];
        self.hyperepoch.epochs[run.epoch as usize].runnables[run.runnable.index()].engine
    }

    fn start(&mut self, now_ns: f64) {
        for engine in 0..self.ready.len() {
            while !self.ready[engine].is_empty() && !self.lanes[engine].is_empty() {
                let (Some(Waiting { run: Reverse(run), .. }), Some(Reverse(lane))) =
                    (self.ready[engine].pop(), self.lanes[engine].pop())
                else {
                    break;
                };
                let Run { epoch, frame, runnable, .. } = self.runs.all[run as usize];
                let end_ns = now_ns + self.hyperepoch.epochs[epoch as usize].runnables[runnable.index()].cost_ns;
                let (start_us, end_us, engine) = (now_ns / 1e3, end_ns / 1e3, EngineId(engine as u32));
                self.spans.push(RunnableSpan { epoch, frame, runnable, engine, lane, start_us, end_us });
                self.add_event(end_ns, What::End { run, lane });
            }
        }
    }

    fn end(&mut self, run: u32, lane: u32, now_ns: f64) {
        let engine = self.engine(run);
        self.lanes[engine.index()].push(Reverse(lane));
        let Run { epoch, frame, runnable, is_last, .. } = self.runs.all[run as usize];
        if is_last {
            let mutexes = &self.hyperepoch.epochs[epoch as usize].runnables[runnable.index()].mutexes;
            mutexes.iter().for_each(|&mutex| self.release_mutex(mutex));
        }
        for next in std::mem::take(&mut self.runs.all[run as usize].next) {
            self.runs.all[next as usize].waits -= 1;
            if self.runs.all[next as usize].waits == 0 {
                self.take_mutexes(next);
            }
        }
        self.left[epoch as usize] -= 1;
        if self.left[epoch as usize] == 0 {
            self.end_frame(epoch, frame, now_ns);
        }
    }

    /// Gives a mutex to the first run that waits for it.
    fn release_mutex(&mut self, mutex: u32) {
        let (is_held, waiting) = &mut self.mutexes[mutex as usize];
        let next = waiting.pop();
        *is_held = next.is_some();
        if let Some(Waiting { run: Reverse(run), .. }) = next {
            self.runs.all[run as usize].taken += 1;
            self.take_mutexes(run);
        }
    }
}
