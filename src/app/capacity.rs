//! The capacities of connections: how many messages each must hold, and the ones in a file that hold fewer.

use super::fault::{Warning, quoted};
use super::order::is_before;
use super::parts::{Component, Connection, End};
use super::ports::{Mode, Order, Port, capacity_needed};
use super::schedule::{Delivery, Epoch, Link, Reason};
use crate::error::Result;

/// Computes the capacity of each link of an epoch. Fails if a capacity in the file is too small.
pub(super) fn check(
    epoch: &mut Epoch,
    connections: &[Connection],
    components: &[Component],
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let orders = orders(epoch, connections, components);
    let mut links = std::mem::take(&mut epoch.links);
    for (link, order) in links.iter_mut().zip(orders) {
        let connection = &connections[link.connection as usize];
        let offset = link.offset.unwrap_or(0).max(0) as u32;
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

/// Returns for each link of an epoch which end comes first within a frame.
///
/// The consumer comes first if its last pass, which releases the message, comes before the pass that sends
/// the next one. Data and phases alone never bring that about.
fn orders(epoch: &Epoch, connections: &[Connection], components: &[Component]) -> Vec<Order> {
    let is_order = |reason| matches!(reason, Reason::Declared | Reason::Singleton(_));
    let has_order = epoch.dependencies.iter().any(|dependency| is_order(dependency.reason));
    let is_possible = has_order || epoch.runnables.iter().any(|runnable| runnable.row == 0);
    let first = |link: &Link| if link.delivery == Delivery::Inverted { Order::ConsumerFirst } else { Order::ProducerFirst };
    let mut orders: Vec<Order> = epoch.links.iter().map(first).collect();
    let (mut asked, mut pairs) = (Vec::new(), Vec::new());
    for (number, link) in epoch.links.iter().enumerate().filter(|_| is_possible) {
        let connection = &connections[link.connection as usize];
        let component = |end: End| &components[end.component.index()];
        let sends = epoch.ends_of(component(connection.source).last());
        let releases = epoch.ends_of_component(component(connection.target));
        if let (Delivery::ByItem, true, Some((sends, _)), Some((_, releases))) =
            (link.delivery, connection.is_direct(), sends, releases)
        {
            asked.push(number);
            pairs.push((releases.0, sends.0));
        }
    }
    let is_first = is_before(epoch.runnables.len(), &epoch.edges(), &pairs);
    asked.iter().zip(is_first).filter(|(_, is_first)| *is_first).for_each(|(&link, _)| orders[link] = Order::ConsumerFirst);
    orders
}

impl Link {
    /// Returns the capacity that the connection needs if its consumer is this many phases behind.
    pub(super) fn needed_at(offset: u32) -> u32 {
        capacity_needed(offset, Order::ProducerFirst)
    }
}
