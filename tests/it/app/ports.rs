//! The model of the original's ports against recorded behaviour of the original, message by message.

use anabranch::app::ports::{Mode, Order, Port, capacity_needed};
use serde_json::Value;

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("../cases/ports.json")).unwrap()
}

fn port(row: &Value) -> Port {
    Port {
        offset: row["offset"].as_u64().unwrap() as u32,
        order: if row["order"] == "pc" { Order::ProducerFirst } else { Order::ConsumerFirst },
        mode: if row["mode"] == "fifo" { Mode::Fifo } else { Mode::Mailbox },
        capacity: row["capacity"].as_u64().unwrap() as u32,
        reuse: row["reuse"].as_bool().unwrap(),
    }
}

#[test]
fn messages_are_delivered_dropped_and_refused_as_in_the_original() {
    // Seen to fail with a receiver that does not keep a message that is not due, and with a mailbox that
    // drops the new message.
    let rows = rows();
    assert_eq!(rows.len(), 12);
    for row in rows {
        let (port, delivered) = (port(&row), row["delivered"].as_array().unwrap());
        let traffic = port.simulate(8);
        let found: Vec<Value> = traffic.delivered.iter().map(|message| message.map_or(Value::Null, Value::from)).collect();
        assert_eq!(found, *delivered, "{row}");
        assert_eq!(Value::from(traffic.dropped), row["dropped"], "{row}");
        assert_eq!(traffic.producer_error_at.map_or(Value::Null, Value::from), row["producer_error_at"], "{row}");
    }
}

#[test]
fn the_capacity_needed_is_the_smallest_that_loses_nothing() {
    // Seen to fail with a capacity of `offset` if the producer runs first.
    for offset in 0..6 {
        for order in [Order::ProducerFirst, Order::ConsumerFirst] {
            for mode in [Mode::Fifo, Mode::Mailbox] {
                let needed = capacity_needed(offset, order);
                let lost = |capacity| Port { offset, order, mode, capacity, reuse: false }.first_lost(100);
                assert_eq!(lost(needed), None, "{offset} {order:?} {mode:?}");
                assert!(needed == 1 || lost(needed - 1).is_some(), "{offset} {order:?} {mode:?}");
            }
        }
    }
}

#[test]
fn a_singleton_delivers_across_one_phase_only_if_the_consumer_comes_first() {
    // Seen to fail with a receiver that keeps a message that is not due.
    let lost = |offset, order| Port { offset, order, mode: Mode::Singleton, capacity: 1, reuse: false }.first_lost(50);
    assert_eq!(lost(0, Order::ProducerFirst), None);
    assert_eq!(lost(1, Order::ConsumerFirst), None);
    assert_eq!(lost(1, Order::ProducerFirst), Some(1));
    assert_eq!(lost(2, Order::ConsumerFirst), Some(1));
}

#[test]
fn reuse_returns_the_last_message_again() {
    // Seen to fail without the last message kept.
    let port = |reuse| Port { offset: 1, order: Order::ProducerFirst, mode: Mode::Mailbox, capacity: 1, reuse };
    assert_eq!(port(true).simulate(5).delivered, [None, Some(1), Some(1), Some(3), Some(3)]);
    assert_eq!(port(false).simulate(5).delivered, [None, Some(1), None, Some(3), None]);
}
