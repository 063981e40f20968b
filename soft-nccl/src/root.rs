//! Where the ranks of a communicator meet: threads of the process that has made its id, one for each rank,
//! which comes over TCP. The ranks are threads or processes of one machine.
//!
//! A rank whose connection ends before it leaves is lost: the root ends the connections of all, so all get an
//! error. If the process of the root dies, they end, too.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::clique::Clique;
use crate::frames::{Reply, Request, read, write};
use crate::lock;

/// Where a root listens, and the word that it expects.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    port: u16,
    password: u64,
}

impl Address {
    /// Returns the address in the form of an id.
    pub(crate) fn to_id(self) -> [u8; 128] {
        let mut id = [0; 128];
        id[..2].copy_from_slice(&self.port.to_le_bytes());
        id[2..10].copy_from_slice(&self.password.to_le_bytes());
        id
    }

    pub(crate) fn of_id(id: &[u8; 128]) -> Self {
        let mut password = [0; 8];
        password.copy_from_slice(&id[2..10]);
        Self { port: u16::from_le_bytes([id[0], id[1]]), password: u64::from_le_bytes(password) }
    }

    /// Connects a rank.
    pub(crate) fn connect(self, rank: usize, size: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        write(&stream, &Request::Hello { password: self.password, rank, size })?;
        Ok(stream)
    }
}

struct Root {
    password: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The ranks that have come. None before the first one.
    links: Vec<Option<TcpStream>>,
    clique: Option<Clique>,
}

/// Starts a root.
pub(crate) fn start() -> io::Result<Address> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = Address { port: listener.local_addr()?.port(), password: RandomState::new().hash_one(()) };
    let root = Arc::new(Root { password: address.password, state: Mutex::default() });
    thread::Builder::new().name("soft-nccl-root".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(rank) = root.admit(&stream) else { continue };
            let own = root.clone();
            thread::spawn(move || own.serve(rank, &stream));
            if lock(&root.state).clique.is_some() {
                break;
            }
        }
    })?;
    Ok(address)
}

impl Root {
    /// Adds a rank. Returns its number, or None if it cannot be one of these ranks.
    fn admit(&self, stream: &TcpStream) -> Option<usize> {
        let Request::Hello { password, rank, size } = read(stream).ok()? else { return None };
        let link = stream.set_nodelay(true).and_then(|()| stream.try_clone()).ok()?;
        (password == self.password && lock(&self.state).join(rank, size, link)).then_some(rank)
    }

    fn serve(&self, rank: usize, stream: &TcpStream) {
        loop {
            match read(stream) {
                Ok(Request::Work(work, given)) => {
                    let mut state = lock(&self.state);
                    let made = state.clique.as_mut().map(|clique| clique.begin(rank, work, given)).unwrap_or_default();
                    made.into_iter().for_each(|(rank, made)| state.tell(rank, &Reply::Made(made)));
                }
                Ok(Request::Leave) => return,
                Ok(Request::Hello { .. }) | Err(_) => return lock(&self.state).end(),
            }
        }
    }
}

impl State {
    /// Returns whether the rank is one of these, and has not come before.
    fn join(&mut self, rank: usize, size: usize, link: TcpStream) -> bool {
        if self.links.is_empty() {
            self.links.resize_with(size, || None);
        }
        if self.links.len() != size || self.links.get(rank).is_none_or(Option::is_some) {
            return false;
        }
        self.links[rank] = Some(link);
        if self.links.iter().all(Option::is_some) {
            self.clique = Some(Clique::new(size));
            (0..size).for_each(|rank| self.tell(rank, &Reply::Joined));
        }
        true
    }

    /// A rank that is lost is found by the thread that serves it.
    fn tell(&self, rank: usize, reply: &Reply) {
        self.links[rank].iter().for_each(|link| _ = write(link, reply));
    }

    fn end(&self) {
        self.links.iter().flatten().for_each(|link| _ = link.shutdown(Shutdown::Both));
    }
}
