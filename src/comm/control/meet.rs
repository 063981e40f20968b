//! The start of the control connections: rank 0 listens, and all others connect.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::link::Link;
use super::message::Message;

/// The time between two looks for a connection.
const LOOK: Duration = Duration::from_millis(1);
/// The longest wait for one address of rank 0.
const CONNECT: Duration = Duration::from_secs(2);

/// Where rank 0 listens. It goes to all other ranks over the transport.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Invitation {
    addresses: Vec<SocketAddr>,
    password: u64,
}

/// Rank 0, before the others have connected.
pub(crate) struct Host {
    listener: TcpListener,
    password: u64,
}

impl Host {
    /// Listens on all addresses of this machine.
    pub(crate) fn new() -> io::Result<(Self, Invitation)> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        // The hash of nothing, with keys that the operating system has drawn.
        let password = RandomState::new().build_hasher().finish();
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let mut addresses: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).filter(IpAddr::is_ipv4).collect();
        addresses.push(Ipv4Addr::LOCALHOST.into());
        // A rank on another machine must not take its own loopback address for that of rank 0 before the
        // others.
        addresses.sort_by_key(IpAddr::is_loopback);
        addresses.dedup();
        let addresses = addresses.into_iter().map(|address| (address, port).into()).collect();
        Ok((Self { listener, password }, Invitation { addresses, password }))
    }

    /// Waits until all other ranks of the `size` have connected.
    pub(in crate::comm) fn links(&self, size: u32, deadline: Duration) -> io::Result<Vec<Link>> {
        let begin = Instant::now();
        let mut links: Vec<Link> = Vec::new();
        while links.len() + 1 < size as usize {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Others than ranks may connect, too.
                    if let Ok(link) = self.welcome(stream, size) {
                        // A rank whose greeting was late has given up its first connection.
                        links.retain(|other| other.rank != link.rank);
                        links.push(link);
                    }
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) if begin.elapsed() > deadline => {
                    let missing: Vec<u32> = (1..size).filter(|rank| !links.iter().any(|link| link.rank == *rank)).collect();
                    let text = format!("ranks {missing:?} have not connected to rank 0 within {deadline:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(_) => sleep(LOOK),
            }
        }
        Ok(links)
    }

    fn welcome(&self, stream: TcpStream, size: u32) -> io::Result<Link> {
        stream.set_nonblocking(false)?;
        let rank = greet(&stream, self.password, 0)?;
        if !(1..size).contains(&rank) {
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_nonblocking(true)?;
        Ok(Link::new(rank, stream))
    }
}

impl Invitation {
    /// Connects to rank 0.
    pub(in crate::comm) fn link(&self, rank: u32) -> io::Result<Link> {
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in &self.addresses {
            let met = TcpStream::connect_timeout(address, CONNECT).and_then(|stream| {
                let host = greet(&stream, self.password, rank)?;
                stream.set_nonblocking(true)?;
                if host == 0 { Ok(Link::new(host, stream)) } else { Err(ErrorKind::InvalidData.into()) }
            });
            match met {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Sends this side's first message, and returns the rank of the other side.
fn greet(mut stream: &TcpStream, password: u64, rank: u32) -> io::Result<u32> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CONNECT))?;
    let (mut out, mut received) = (Vec::new(), Vec::new());
    Message::Hello { password, rank }.write(&mut out);
    stream.write_all(&out)?;
    loop {
        // One byte at a time: what comes behind the greeting is not for here.
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        received.push(byte[0]);
        match Message::read(&mut received) {
            Ok(None) => {}
            Ok(Some(Message::Hello { password: other, rank })) if other == password => return Ok(rank),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}
