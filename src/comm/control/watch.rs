//! The thread that watches the other ranks.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polling::{Event, Events, Poller};

use super::link::{Ended, Link};
use super::message::{ALL, Message, NONE, shortened};
use super::rest::Rest;
use super::waits::Waits;
use super::worlds::{Free, Worlds};
use crate::comm::done::Done;
use crate::comm::health::Health;
use crate::error::WorldFault;
use crate::sync::{Condvar, Mutex, lock, spawn};

/// The control connection of this process.
pub(crate) struct Control {
    rank: u32,
    size: u32,
    worlds: Worlds,
    /// What the thread is to send.
    outgoing: Mutex<Vec<Message>>,
    poller: Poller,
    /// What waits for the next beat, and for the one after it.
    hearing: Mutex<[Vec<Arc<Done<()>>>; 2]>,
    end: End,
}

/// The end of the process.
#[derive(Default)]
struct End {
    state: Mutex<EndState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct EndState {
    /// When this rank came to its end.
    begun: Option<Instant>,
    /// All ranks have come to their end.
    all_finished: bool,
    /// None of them has an operation in flight.
    all_idle: bool,
    /// The thread is to close the links.
    is_closing: bool,
    /// All links have ended.
    is_closed: bool,
}

/// The longest time between two looks at the state at the end.
const LOOK: Duration = Duration::from_millis(50);
/// The longest time for which the other ranks may take to read what this one has sent at last.
const LINGER: Duration = Duration::from_secs(1);

impl Control {
    /// Watches the ranks at the other ends of these links. A world of one rank has none.
    pub(in crate::comm) fn start((rank, size): (u32, u32), links: Vec<Link>) -> io::Result<Arc<Self>> {
        let (worlds, outgoing, poller) = (Worlds::default(), Mutex::default(), Poller::new()?);
        let (hearing, end) = (Mutex::default(), End::default());
        let control = Arc::new(Self { rank, size, worlds, outgoing, poller, hearing, end });
        if !links.is_empty() {
            let own = control.clone();
            spawn("anabranch-ranks".into(), move || own.run(links))?;
        }
        Ok(control)
    }

    /// Adds a world that is being made. Returns its number: all ranks add the same worlds in the same order.
    pub(in crate::comm) fn add(&self, health: Arc<Health>, waits: Arc<Waits>, deadline: Duration) -> u32 {
        let world = self.worlds.add(health, waits, deadline);
        let _ = self.poller.notify();
        world
    }

    /// Notes that a world was made, and how its communicator is freed.
    pub(in crate::comm) fn note_made(&self, world: u32, free: Free) {
        self.worlds.note_made(world, free);
    }

    /// Returns the number of worlds that this rank has left, and whose communicators are not freed.
    pub(crate) fn unfreed(&self) -> usize {
        self.worlds.unfreed()
    }

    /// Leaves a world.
    pub(crate) fn leave(&self, world: u32) {
        let collectives = self.worlds.leave(world);
        self.tell(Message::Left { world, rank: self.rank, collectives });
    }

    /// Notes that none of this rank's operations is in flight in a world that it has left, and how many
    /// messages it has sent and received, if the world is whole.
    pub(crate) fn rest(&self, world: u32, messages: Option<(u64, u64)>) {
        if self.size > 1 {
            self.tell(Message::AtRest { world, messages });
        } else if Rest::default().note(world, messages, 1) {
            self.free(world);
        }
    }

    /// Gives this rank one to two beats to hear of what has happened to another one.
    pub(crate) fn heard(&self) -> impl Future<Output = ()> + Send + use<> {
        let heard = Arc::new(Done::default());
        if self.size > 1 {
            lock(&self.hearing)[1].push(heard.clone())
        } else {
            heard.set(())
        }
        async move { heard.get().await }
    }

    /// Notes a beat.
    fn note_beat(&self) {
        let heard = {
            let mut hearing = lock(&self.hearing);
            let next = std::mem::take(&mut hearing[1]);
            std::mem::replace(&mut hearing[0], next)
        };
        heard.iter().for_each(|heard| heard.set(()));
    }

    fn free(&self, world: u32) {
        self.worlds.take_free(world).into_iter().for_each(|free| free());
    }

    /// Breaks a world, here and on all other ranks.
    pub(crate) fn break_by(&self, world: u32, fault: WorldFault) {
        let fault = shortened(fault);
        if self.worlds.break_by(world, &fault) {
            self.tell(Message::Broken { world, fault });
        }
    }

    /// Waits at the end of the process until all ranks have come to theirs. Returns whether the transport can
    /// be ended: no rank was lost, and none has an operation in flight. `is_idle` says so of this rank: sends
    /// may end late.
    pub(crate) fn finish(&self, is_idle: impl Fn() -> bool) -> bool {
        let mut is_idle_now = is_idle();
        if self.size == 1 {
            return is_idle_now;
        }
        lock(&self.end.state).begun = Some(Instant::now());
        // Worlds may be left without a word: in a static variable, or by `exit`.
        for (world, collectives) in self.worlds.open() {
            self.tell(Message::Left { world, rank: self.rank, collectives });
        }
        self.tell(Message::Finished { rank: self.rank, is_idle: is_idle_now });
        let is_over = |end: EndState| end.all_finished || self.worlds.has_lost();
        while !is_idle_now && !self.wait_at_end(LOOK, is_over) {
            is_idle_now = is_idle();
            if is_idle_now {
                self.tell(Message::Finished { rank: self.rank, is_idle: true });
            }
        }
        self.wait_at_end(Duration::MAX, is_over);
        // If a process ends while it has unread messages, its own last messages are lost.
        lock(&self.end.state).is_closing = true;
        let _ = self.poller.notify();
        self.wait_at_end(LINGER, |end| end.is_closed);
        let end = lock(&self.end.state);
        end.all_finished && end.all_idle
    }

    /// Waits until the end has a state, and returns true, or for so long.
    fn wait_at_end(&self, most: Duration, is_over: impl Fn(EndState) -> bool) -> bool {
        let begin = Instant::now();
        let mut state = lock(&self.end.state);
        while !is_over(*state) && begin.elapsed() < most {
            state = match self.end.changed.wait_timeout(state, LOOK) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        is_over(*state)
    }

    /// Changes the state of the end, and wakes the thread that waits for it.
    fn note_at_end(&self, change: impl FnOnce(&mut EndState)) {
        change(&mut lock(&self.end.state));
        self.end.changed.notify_all();
    }

    fn tell(&self, message: Message) {
        if self.size == 1 {
            return;
        }
        lock(&self.outgoing).push(message);
        let _ = self.poller.notify();
    }

    fn run(&self, links: Vec<Link>) {
        let mut thread = Thread {
            control: self,
            links,
            beat: Instant::now(),
            finished: BTreeMap::new(),
            complete: None,
            rest: Rest::default(),
        };
        for (key, link) in thread.links.iter().enumerate() {
            // SAFETY: the link is deleted from the poller before it is dropped.
            let added = unsafe { self.poller.add(&link.stream, Event::readable(key)) };
            debug_assert!(added.is_ok(), "a new socket is in no poller");
        }
        let mut events = Events::new();
        loop {
            thread.step(&mut events);
        }
    }
}

/// What the thread has.
struct Thread<'c> {
    control: &'c Control,
    /// A link whose rank has died stays, without being read.
    links: Vec<Link>,
    /// When the last beats were sent.
    beat: Instant,
    /// The ranks that have come to their end, and whether each has nothing in flight, as rank 0 knows.
    finished: BTreeMap<u32, bool>,
    /// When all had come to their end.
    complete: Option<Instant>,
    /// The worlds that ranks have left, as rank 0 knows.
    rest: Rest,
}

impl Thread<'_> {
    fn step(&mut self, events: &mut Events) {
        let period = self.control.worlds.period();
        events.clear();
        let _ = self.control.poller.wait(events, Some(period.saturating_sub(self.beat.elapsed())));
        for event in events.iter() {
            self.read(event.key);
        }
        let outgoing = std::mem::take(&mut *lock(&self.control.outgoing));
        for message in outgoing {
            self.send(&message, None);
            match message {
                Message::Finished { rank, is_idle } => self.note_finished(rank, is_idle),
                Message::AtRest { world, messages } => self.note_rest(world, messages),
                _ => {}
            }
        }
        let is_closing = lock(&self.control.end.state).is_closing;
        if is_closing {
            self.close();
        }
        let waited = self.beat.elapsed();
        if waited >= period {
            self.beat = Instant::now();
            self.control.note_beat();
            self.end_all();
            if !is_closing {
                self.send(&Message::Beat, None);
                self.watch(waited, period);
            }
        }
    }

    /// The links whose other ends live.
    fn open(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().filter(|link| !link.has_ended)
    }

    /// Sends a message to the other ends, except one.
    fn send(&mut self, message: &Message, except: Option<u32>) {
        self.open().filter(|link| Some(link.rank) != except).for_each(|link| link.send(message));
    }

    fn read(&mut self, key: usize) {
        let link = &mut self.links[key];
        match link.receive() {
            Ok(messages) => {
                let _ = self.control.poller.modify(&link.stream, Event::readable(key));
                let rank = link.rank;
                messages.into_iter().for_each(|message| self.take(message, rank));
            }
            Err(Ended) => {
                let _ = self.control.poller.delete(&link.stream);
                link.end();
                let rank = link.rank;
                // At the end of the program, ranks go one after the other.
                if !lock(&self.control.end.state).all_finished {
                    self.break_by(ALL, &WorldFault::Died { rank });
                }
            }
        }
    }

    /// Takes a message from a rank. Rank 0 tells the others.
    fn take(&mut self, message: Message, from: u32) {
        use Message::{AllFinished, AtRest, Beat, Broken, Finished, Free, Hello, Left};
        if self.control.rank == 0 && matches!(message, Broken { .. } | Left { .. } | Finished { .. }) {
            self.send(&message, Some(from));
        }
        match message {
            Broken { world, fault } => self.note_broken(world, &fault),
            Left { world, rank, collectives } => self.control.worlds.note_left(world, rank, collectives),
            Finished { rank, is_idle } => {
                self.control.worlds.note_finished(rank);
                self.note_finished(rank, is_idle);
            }
            AllFinished { is_idle } => self.note_all_finished(is_idle),
            AtRest { world, messages } => self.note_rest(world, messages),
            Free { world } => self.control.free(world),
            Hello { .. } | Beat => {}
        }
    }

    /// Breaks the worlds of ranks that are silent, and those that wait for a rank that has left.
    fn watch(&mut self, waited: Duration, period: Duration) {
        // If this process was stopped itself, the others had no chance to be heard.
        if waited > 4 * period {
            let now = Instant::now();
            return self.links.iter_mut().for_each(|link| link.heard = now);
        }
        let ending = lock(&self.control.end.state).begun;
        let worlds = &self.control.worlds;
        let mut faults = Vec::new();
        for link in self.links.iter().filter(|link| !link.has_ended) {
            let silence = link.silence();
            let fault = WorldFault::Silent { rank: link.rank, ms: silence.as_millis() as u64 };
            faults.extend(worlds.silenced(silence).into_iter().map(|world| (world, fault.clone())));
            // At its end, this rank waits for the others without a world.
            if ending.is_some_and(|begun| silence.min(begun.elapsed()) > worlds.least() / 2) {
                faults.push((NONE, fault));
            }
        }
        faults.extend(worlds.left_waiting().into_iter().map(|(world, rank)| (world, WorldFault::Left { rank })));
        for (world, fault) in faults {
            self.break_by(world, &fault);
        }
        self.open().for_each(Link::flush);
    }

    /// Tells the others first: this process may end as soon as its own world is broken.
    fn break_by(&mut self, world: u32, fault: &WorldFault) {
        self.send(&Message::Broken { world, fault: fault.clone() }, None);
        self.note_broken(world, fault);
    }

    fn note_broken(&self, world: u32, fault: &WorldFault) {
        self.control.worlds.break_by(world, fault);
        self.control.note_at_end(|_| {});
    }

    /// Sends no more. The links end when the other ranks have read all, and have closed their sides.
    fn close(&mut self) {
        self.links.iter_mut().for_each(Link::close);
        if self.links.iter().all(|link| link.has_ended) {
            self.control.note_at_end(|end| end.is_closed = true);
        }
    }

    /// Notes that a rank has come to its end. Rank 0 tells the others when all have.
    fn note_finished(&mut self, rank: u32, is_idle: bool) {
        self.finished.insert(rank, is_idle);
        if self.finished.len() == self.links.len() + 1 {
            self.complete.get_or_insert_with(Instant::now);
        }
        self.end_all();
    }

    /// Lets rank 0 tell the others that all have come to their end: at once if nothing is in flight, else
    /// after some time.
    fn end_all(&mut self) {
        let is_told = lock(&self.control.end.state).all_finished;
        let Some(complete) = self.complete.filter(|_| self.control.rank == 0 && !is_told) else { return };
        let is_idle = self.finished.values().all(|is_idle| *is_idle);
        if is_idle || complete.elapsed() > LINGER {
            self.send(&Message::AllFinished { is_idle }, None);
            self.note_all_finished(is_idle);
        }
    }

    fn note_all_finished(&self, is_idle: bool) {
        self.control.note_at_end(|end| (end.all_finished, end.all_idle) = (true, is_idle));
    }

    /// Notes that nothing of a rank is in flight in a world that it has left. Rank 0 tells the others when
    /// that holds for all.
    fn note_rest(&mut self, world: u32, messages: Option<(u64, u64)>) {
        if self.control.rank == 0 && self.rest.note(world, messages, self.control.size) {
            self.send(&Message::Free { world }, None);
            self.control.free(world);
        }
    }
}
