//! The thread that watches the other ranks.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polling::{Event, Events, Poller};

use super::link::{Ended, Link};
use super::message::{ALL, Message};
use super::worlds::Worlds;
use crate::comm::health::Health;
use crate::error::WorldFault;
use crate::sync::{Condvar, Mutex, lock, spawn};

/// The control connection of this process.
pub(crate) struct Control {
    rank: u32,
    worlds: Worlds,
    /// What the thread is to send.
    outgoing: Mutex<Vec<Message>>,
    poller: Poller,
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
    /// All ranks have come to their end.
    all_finished: bool,
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
    pub(in crate::comm) fn start(rank: u32, links: Vec<Link>) -> io::Result<Arc<Self>> {
        let poller = Poller::new()?;
        let control = Arc::new(Self { rank, worlds: Worlds::default(), outgoing: Mutex::default(), poller, end: End::default() });
        if !links.is_empty() {
            let own = control.clone();
            spawn("anabranch-ranks".into(), move || own.run(links))?;
        }
        Ok(control)
    }

    pub(crate) fn add(&self, world: u32, health: Arc<Health>, deadline: Duration) {
        self.worlds.add(world, health, deadline);
        let _ = self.poller.notify();
    }

    /// Leaves a world.
    pub(crate) fn leave(&self, world: u32) {
        self.worlds.remove(world);
        self.tell(Message::Left { world, rank: self.rank });
    }

    /// Breaks a world, here and on all other ranks.
    pub(crate) fn break_by(&self, world: u32, fault: WorldFault) {
        if self.worlds.break_by(world, &fault) {
            self.tell(Message::Broken { world, fault });
        }
    }

    /// Waits at the end of the process until all ranks have come to theirs. Returns false if a rank never
    /// will, or does not wait: a world has broken, or a rank has died.
    pub(crate) fn finish(&self, size: u32) -> bool {
        if size == 1 {
            return !self.worlds.has_broken();
        }
        self.tell(Message::Finished { rank: self.rank });
        self.wait_at_end(Duration::MAX, |end| end.all_finished || self.worlds.has_broken());
        // If a process ends while it has unread messages, its own last messages are lost.
        lock(&self.end.state).is_closing = true;
        let _ = self.poller.notify();
        self.wait_at_end(LINGER, |end| end.is_closed);
        lock(&self.end.state).all_finished
    }

    fn wait_at_end(&self, most: Duration, is_over: impl Fn(EndState) -> bool) {
        let begin = Instant::now();
        let mut state = lock(&self.end.state);
        while !is_over(*state) && begin.elapsed() < most {
            state = match self.end.changed.wait_timeout(state, LOOK) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Changes the state of the end, and wakes the thread that waits for it.
    fn note_at_end(&self, change: impl FnOnce(&mut EndState)) {
        change(&mut lock(&self.end.state));
        self.end.changed.notify_all();
    }

    fn tell(&self, message: Message) {
        lock(&self.outgoing).push(message);
        let _ = self.poller.notify();
    }

    fn run(&self, links: Vec<Link>) {
        let mut thread = Thread { control: self, links, beat: Instant::now(), finished: BTreeSet::new() };
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
    /// The ranks that have come to their end, as rank 0 knows.
    finished: BTreeSet<u32>,
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
            if let Message::Finished { rank } = message {
                self.note_finished(rank);
            }
        }
        if lock(&self.control.end.state).is_closing {
            return self.close();
        }
        if self.beat.elapsed() >= period {
            let waited = self.beat.elapsed();
            self.beat = Instant::now();
            self.send(&Message::Beat, None);
            self.watch(waited, period);
        }
    }

    /// Sends a message to the other ends, except one.
    fn send(&mut self, message: &Message, except: Option<u32>) {
        self.links.iter_mut().filter(|link| Some(link.rank) != except).for_each(|link| link.send(message));
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
        if self.control.rank == 0 && matches!(message, Message::Broken { .. } | Message::Left { .. } | Message::Finished { .. }) {
            self.send(&message, Some(from));
        }
        match &message {
            Message::Broken { world, fault } => self.note_broken(*world, fault),
            Message::Left { world, rank } => self.control.worlds.note_left(*world, *rank),
            // Its worlds may be left without a word: in a static variable, or by `exit`.
            Message::Finished { rank } => {
                self.control.worlds.note_left(ALL, *rank);
                self.note_finished(*rank);
            }
            Message::AllFinished => self.control.note_at_end(|end| end.all_finished = true),
            Message::Hello { .. } | Message::Beat => {}
        }
    }

    /// Breaks the worlds of ranks that are silent, and those that wait for a rank that has left.
    fn watch(&mut self, waited: Duration, period: Duration) {
        // If this process was stopped itself, the others had no chance to be heard.
        if waited > 4 * period {
            let now = Instant::now();
            return self.links.iter_mut().for_each(|link| link.heard = now);
        }
        let silent = self.links.iter().flat_map(|link| {
            let silence = link.silence();
            let worlds = self.control.worlds.silenced(silence).into_iter();
            worlds.map(move |world| (world, WorldFault::Silent { rank: link.rank, ms: silence.as_millis() as u64 }))
        });
        let left = self.control.worlds.left_waiting();
        let left = left.into_iter().map(|(world, rank)| (world, WorldFault::Left { rank }));
        for (world, fault) in silent.chain(left).collect::<Vec<_>>() {
            self.break_by(world, &fault);
        }
        self.links.iter_mut().for_each(Link::flush);
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
    fn note_finished(&mut self, rank: u32) {
        self.finished.insert(rank);
        if self.control.rank == 0 && self.finished.len() == self.links.len() + 1 {
            self.send(&Message::AllFinished, None);
            self.control.note_at_end(|end| end.all_finished = true);
        }
    }
}
