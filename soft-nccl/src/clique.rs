//! The operations of the ranks that have one id: what each rank has given, and what it gets.

use std::collections::{HashMap, VecDeque};

use crate::combine::combined;
use crate::frames::{Collective, Work};

pub(crate) struct Clique {
    size: usize,
    /// The number of collectives that each rank has begun.
    begun: Vec<u64>,
    /// The collectives that not all ranks have begun, by number.
    meetings: HashMap<u64, Vec<Option<Given>>>,
    /// The messages that no rank has taken yet, from one rank to another.
    mail: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// The exchange that each rank waits for.
    exchanges: Vec<Option<Exchange>>,
}

/// What a rank does, and its bytes.
type Given = (Collective, Vec<u8>);

struct Exchange {
    send: Option<usize>,
    receive: Option<usize>,
    received: Vec<u8>,
}

/// The ranks whose operations have ended, and the bytes that they get.
pub(crate) type Made = Vec<(usize, Vec<u8>)>;

impl Clique {
    pub(crate) fn new(size: usize) -> Self {
        let exchanges = (0..size).map(|_| None).collect();
        Self { size, begun: vec![0; size], meetings: HashMap::new(), mail: HashMap::new(), exchanges }
    }

    /// Begins the next operation of a rank. Returns what has ended with it.
    pub(crate) fn begin(&mut self, rank: usize, work: Work, given: Vec<u8>) -> Made {
        match work {
            Work::Collective(what) => self.meet(rank, what, given),
            Work::Exchange { send, receive } => {
                send.into_iter().for_each(|to| self.mail.entry((rank, to)).or_default().push_back(given.clone()));
                self.exchanges[rank] = Some(Exchange { send, receive, received: Vec::new() });
                self.exchange()
            }
        }
    }

    /// If the ranks do different things, they wait for ever.
    fn meet(&mut self, rank: usize, what: Collective, given: Vec<u8>) -> Made {
        let number = self.begun[rank];
        self.begun[rank] += 1;
        let meeting = self.meetings.entry(number).or_insert_with(|| vec![None; self.size]);
        meeting[rank] = Some((what, given));
        let is_same = |given: &Option<Given>| given.as_ref().is_some_and(|(other, _)| *other == what);
        if !meeting.iter().all(is_same) {
            return Vec::new();
        }
        let all: Vec<Vec<u8>> = self.meetings.remove(&number).into_iter().flatten().flatten().map(|(_, given)| given).collect();
        let parts: Vec<Vec<u8>> = match what {
            Collective::AllGather { .. } => vec![all.concat(); self.size],
            Collective::Broadcast { root, .. } => vec![all[root as usize].clone(); self.size],
            Collective::AllReduce { of, by, .. } => vec![combined(of, by, &all); self.size],
            Collective::ReduceScatter { of, by, .. } => {
                let sum = combined(of, by, &all);
                let part = sum.len() / self.size;
                (0..self.size).map(|rank| sum[part * rank..][..part].to_vec()).collect()
            }
        };
        parts.into_iter().enumerate().collect()
    }

    /// Gives the messages that have come to the ranks that receive them. A send ends when its message is
    /// taken.
    fn exchange(&mut self) -> Made {
        for (rank, exchange) in self.exchanges.iter_mut().enumerate() {
            let Some(exchange) = exchange else { continue };
            let message = exchange.receive.and_then(|from| self.mail.get_mut(&(from, rank))?.pop_front());
            if let Some(message) = message {
                (exchange.receive, exchange.received) = (None, message);
            }
        }
        let mail = &self.mail;
        let ended = self.exchanges.iter_mut().enumerate().filter_map(|(rank, place)| {
            let is_over = |exchange: &mut Exchange| {
                let is_taken = |to| mail.get(&(rank, to)).is_none_or(VecDeque::is_empty);
                exchange.receive.is_none() && exchange.send.is_none_or(is_taken)
            };
            Some((rank, place.take_if(is_over)?.received))
        });
        ended.collect()
    }
}
