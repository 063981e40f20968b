//! The capacities of connections: how many messages each must hold, and the ones in a file that hold fewer.

use std::collections::HashMap;

use super::fault::{Warning, quoted};
use super::order::reachable;
use super::parts::{Component, Connection};
use super::ports::{Mode, Order, Port, capacity_needed};
use super::schedule::{Delivery, Epoch, Link, Reason};
use crate::error::Result;

/// The most consumers for which the order of a connection that crosses phases is looked up.
const SEARCHES_MAX: usize = 1024;

/// Computes the capacity of each link of an epoch. Fails if a capacity in the file is too small.
pub(super) fn check(
    epoch: &mut Epoch,
    connections: &[Connection],
    components: &[Component],
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut orders = Orders::new(epoch);
    let mut links = std::mem::take(&mut epoch.links);
    for link in &mut links {
        let connection = &connections[link.connection as usize];
        let offset = link.offset.unwrap_or(0).max(0) as u32;
        let order = match link.delivery {
            Delivery::ByItem if connection.is_direct() => orders.of(epoch, connection, components),
            Delivery::Inverted => Order::ConsumerFirst,
            _ => Order::ProducerFirst,
        };
        let needed = if connection.is_direct() { capacity_needed(offset, order) } else { 1 };
        if let Some(declared) = connection.fifo_size.filter(|&declared| declared < needed) {
            return Err(too_small(connection, offset, order, declared, needed, components));
        }
        if connection.mode == Mode::Mailbox && connection.fifo_size.is_none() && needed > 1 {
            let text = format!("the mailbox holds {needed} messages here; the original gives it one, and loses messages");
            warnings.push(Warning::new(&connection.place, text));
        }
        link.capacity = connection.fifo_size.unwrap_or(needed).max(needed);
    }
    epoch.links = links;
    Ok(())
}

fn too_small(
    connection: &Connection,
    offset: u32,
    order: Order,
    declared: u32,
    needed: u32,
    components: &[Component],
) -> crate::error::Error {
    let [source, target] = [connection.source, connection.target].map(|end| quoted(&components[end.component.index()].name));
    let port = Port { offset, order, mode: connection.mode, capacity: declared, reuse: connection.reuse };
    let iterations = 4 * (u64::from(offset) + 2);
    let loss = match (connection.mode, port.first_lost(iterations)) {
        (Mode::Fifo, Some(send)) => format!("send number {send} of {source} would find the queue full and fail"),
        (_, Some(message)) => {
            let lost = port.simulate(iterations).dropped;
            let others = lost.iter().skip(1).take(2).map(u64::to_string).collect::<Vec<_>>().join(", ");
            format!("{target} would never get messages {message}, {others}, ..., and nothing would say so")
        }
        (_, None) => "messages would be lost".to_owned(),
    };
    connection.place.at(".fifo-size").fault(format_args!(
        "`fifo-size` {declared} is too small for the connection from {source} to {target}, which crosses {offset} phase{}: it \
         needs {needed}; {loss}; leave `fifo-size` out, and it is computed",
        if offset == 1 { "" } else { "s" }
    ))
}

/// Finds out which end of a connection comes first within a frame.
struct Orders {
    /// True if anything but data and rows orders runnables, so that a consumer may come first.
    is_possible: bool,
    after: HashMap<u32, Vec<bool>>,
}

impl Orders {
    fn new(epoch: &Epoch) -> Self {
        let is_order = |reason| matches!(reason, Reason::Declared | Reason::Singleton(_));
        let has_order = epoch.dependencies.iter().any(|dependency| is_order(dependency.reason));
        let is_possible = has_order || epoch.runnables.iter().any(|runnable| runnable.row == 0);
        Self { is_possible, after: HashMap::new() }
    }

    /// The consumer comes first if its last pass, which releases the message, comes before the pass that
    /// sends the next one.
    fn of(&mut self, epoch: &Epoch, connection: &Connection, components: &[Component]) -> Order {
        let component = |end: super::parts::End| &components[end.component.index()];
        let (producer, consumer) = (component(connection.source).last(), component(connection.target).last());
        let (Some((sends, _)), Some((_, releases))) = (epoch.ends_of(producer), epoch.ends_of(consumer)) else {
            return Order::ProducerFirst;
        };
        if !self.is_possible || (self.after.len() >= SEARCHES_MAX && !self.after.contains_key(&releases.0)) {
            return Order::ProducerFirst;
        }
        let after = self.after.entry(releases.0).or_insert_with(|| reachable(epoch.runnables.len(), &epoch.edges(), releases.0));
        if after[sends.index()] { Order::ConsumerFirst } else { Order::ProducerFirst }
    }
}

impl Link {
    /// Returns the capacity that the connection needs if its consumer is this many phases behind.
    pub(super) fn needed_at(offset: u32) -> u32 {
        capacity_needed(offset, Order::ProducerFirst)
    }
}
