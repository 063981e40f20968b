//! The dependencies of the epochs: between the passes of a component, along connections, and those that are
//! declared. The mistakes that the original ignores are found here.

use std::collections::HashSet;

use super::build::Parts;
use super::capacity;
use super::fault::{Place, Warning, quoted};
use super::forms::ScheduleForm;
use super::order::cycle;
use super::parts::{Component, Connection, Pass, PassId};
use super::ports::Mode;
use super::rows::{Placed, Rows};
use super::schedule::{Delivery, Dependency, Epoch, Link, Reason, Role, RunnableId, StmSchedule};
use crate::error::Result;

/// Adds all dependencies and links to the epochs of a schedule. `start` is the place of the schedule.
pub(super) fn connect(
    schedule: &mut StmSchedule,
    form: &ScheduleForm,
    rows: &Rows,
    parts: &Parts<'_>,
    start: &Place,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    for (hyper, hyperepoch) in schedule.hyperepochs.iter_mut().enumerate() {
        for (number, epoch) in hyperepoch.epochs.iter_mut().enumerate() {
            add_passes(epoch, (hyper, number), rows, parts)?;
        }
    }
    add_connections(schedule, rows, parts, warnings)?;
    add_declared(schedule, form, rows, parts, &start.at(".passDependencies"))?;
    for epoch in schedule.hyperepochs.iter_mut().flat_map(|hyperepoch| &mut hyperepoch.epochs) {
        check_cycles(epoch)?;
        capacity::check(epoch, parts.connections, parts.components, warnings)?;
    }
    Ok(())
}

fn add(epoch: &mut Epoch, source: RunnableId, target: RunnableId, reason: Reason) {
    epoch.dependencies.push(Dependency { source, target, reason });
}

/// Lets `target` come after `source`: after its submittee, if it is on a device.
fn add_between(epoch: &mut Epoch, source: PassId, target: PassId, reason: Reason) {
    let (source, target) = (epoch.ends_of(source), epoch.ends_of(target));
    if let (Some((_, source)), Some((target, _))) = (source, target) {
        add(epoch, source, target, reason);
    }
}

/// Adds the dependencies between the passes of each component, and between their submitters and submittees.
fn add_passes(epoch: &mut Epoch, number: (usize, usize), rows: &Rows, parts: &Parts<'_>) -> Result<()> {
    for index in 0..epoch.runnables.len() {
        let (id, role) = (epoch.runnables[index].pass, epoch.runnables[index].role);
        if role == Role::Submittee {
            add(epoch, RunnableId(index as u32 - 1), RunnableId(index as u32), Reason::Submission);
            continue;
        }
        let pass = &parts.passes[id.index()];
        let Some(placed) = rows.of(id).filter(|placed| !(placed.is_single && pass.is_implicit)) else { continue };
        for &before in &pass.after {
            let source = &parts.passes[before.index()];
            let Some(found) = rows.of(before) else {
                return Err(not_scheduled(placed, pass, source));
            };
            if found.epoch != number {
                return Err(placed.place.fault(format_args!(
                    "the pass {} depends on {}, which is in another epoch, at {}",
                    quoted(&pass.name),
                    quoted(&source.name),
                    found.place
                )));
            }
            match placed.row.cmp(&found.row) {
                _ if placed.row == 0 || found.row == 0 => add_between(epoch, before, id, Reason::Component),
                std::cmp::Ordering::Equal => add_between(epoch, before, id, Reason::Component),
                std::cmp::Ordering::Greater => {
                    if let (Some((_, source)), Some((target, _))) = (epoch.ends_of(before), epoch.ends_of(id)) {
                        epoch.by_item.push((source, target));
                    }
                }
                std::cmp::Ordering::Less => {
                    return Err(placed.place.fault(format_args!(
                        "the pass {} of phase {} depends on {} of phase {}, which is later: put it in that phase or a later one",
                        quoted(&pass.name),
                        placed.row,
                        quoted(&source.name),
                        found.row
                    )));
                }
            }
        }
    }
    Ok(())
}

fn not_scheduled(placed: &Placed, pass: &Pass, source: &Pass) -> crate::error::Error {
    placed.place.fault(format_args!(
        "{} is scheduled, but {}, on which it depends, is not: schedule that too, or mark the connection `indirect`",
        quoted(&pass.name),
        quoted(&source.name)
    ))
}

fn add_connections(schedule: &mut StmSchedule, rows: &Rows, parts: &Parts<'_>, warnings: &mut Vec<Warning>) -> Result<()> {
    let is_crossing = |connection: &&Connection| {
        let [sender, receiver] = ends(connection, parts);
        rows.of(sender.last())
            .zip(rows.first_of(receiver))
            .is_some_and(|(source, (_, target))| source.epoch == target.epoch && 0 < source.row && source.row < target.row)
    };
    let stamped: HashSet<_> = parts.connections.iter().filter(is_crossing).map(|connection| connection.source).collect();
    for (connection, number) in parts.connections.iter().zip(0..) {
        let [sender, receiver] = ends(connection, parts);
        let source = sender.last();
        // The first pass may not be scheduled: then the first one that is receives.
        let Some((target, consumer)) = rows.first_of(receiver) else { continue };
        let Some(producer) = rows.of(source) else {
            if connection.is_direct() {
                return Err(not_scheduled(consumer, &parts.passes[target.index()], &parts.passes[source.index()]));
            }
            continue;
        };
        let epoch = &mut schedule.hyperepochs[consumer.epoch.0].epochs[consumer.epoch.1];
        if producer.epoch != consumer.epoch {
            check_across(connection, producer, consumer, parts)?;
            let (offset, delivery) = (None, Delivery::AcrossEpochs);
            epoch.links.push(Link { connection: number, offset, delivery, is_stamped: false, capacity: 1 });
            continue;
        }
        let is_stamped = stamped.contains(&connection.source);
        let offset = (producer.row > 0 && consumer.row > 0).then(|| consumer.row as i32 - producer.row as i32);
        let delivery = delivery(connection, offset, producer, consumer, parts)?;
        match delivery {
            Delivery::Within => add_between(epoch, source, target, Reason::Connection(number)),
            Delivery::Inverted => {
                let [sender, receiver] = [sender, receiver].map(|component| epoch.ends_of_component(component));
                if let (Some((first, _)), Some((_, last))) = (sender, receiver) {
                    add(epoch, last, first, Reason::Singleton(number));
                }
            }
            _ => {}
        }
        if let (Some(declared), Some(offset)) = (connection.data_offset, offset)
            && declared != i64::from(offset)
            && connection.is_direct()
        {
            let text =
                format!("`data-offset` is {declared}, and the phases are {offset} apart: the consumer reads by the phases");
            warnings.push(Warning::new(&connection.place, text));
        }
        epoch.links.push(Link { connection: number, offset, delivery, is_stamped, capacity: 1 });
    }
    Ok(())
}

/// Returns the component that sends and the one that receives.
fn ends<'a>(connection: &Connection, parts: &Parts<'a>) -> [&'a Component; 2] {
    [connection.source, connection.target].map(|end| &parts.components[end.component.index()])
}

fn names<'a>(connection: &Connection, parts: &Parts<'a>) -> [&'a str; 2] {
    ends(connection, parts).map(|component| &*component.name)
}

fn check_across(connection: &Connection, producer: &Placed, consumer: &Placed, parts: &Parts<'_>) -> Result<()> {
    if connection.is_indirect || connection.data_offset.is_some() {
        return Ok(());
    }
    let [source, target] = names(connection, parts).map(quoted);
    Err(connection.place.fault(format_args!(
        "{target} depends on {source}, which is in another epoch: epochs run at their own periods, so no order holds between \
         them; schedule both in one epoch, mark the connection `indirect`, or stamp it with `data-offset`; they are at {} and {}",
        producer.place, consumer.place
    )))
}

fn delivery(
    connection: &Connection,
    offset: Option<i32>,
    producer: &Placed,
    consumer: &Placed,
    parts: &Parts<'_>,
) -> Result<Delivery> {
    let [source, target] = names(connection, parts).map(quoted);
    match (connection.is_indirect, offset) {
        (true, Some(1..)) => Ok(Delivery::ByItem),
        (true, _) => Ok(Delivery::Feedback),
        (false, None | Some(0)) => Ok(Delivery::Within),
        (false, Some(1)) if connection.mode == Mode::Singleton => Ok(Delivery::Inverted),
        (false, Some(offset @ 2..)) if connection.mode == Mode::Singleton => Err(connection.place.at(".mode").fault(format_args!(
            "the singleton from {source} to {target} crosses {offset} phases, and its one slot holds the message of one: let it \
             cross at most one phase, or leave out `mode`"
        ))),
        (false, Some(1..)) => Ok(Delivery::ByItem),
        (false, Some(_)) => Err(connection.place.fault(format_args!(
            "{target} in phase {} reads from {source} in phase {}, which is later: put {target} in phase {} or later, or mark the \
             connection `indirect`, so that it reads an earlier item; the phases are those of {} and {}",
            consumer.row, producer.row, producer.row, consumer.place, producer.place
        ))),
    }
}

fn add_declared(schedule: &mut StmSchedule, form: &ScheduleForm, rows: &Rows, parts: &Parts<'_>, start: &Place) -> Result<()> {
    for (name, sources) in form.pass_dependencies.iter() {
        let place = start.at(format_args!(".{name}"));
        if parts.names.is_external(name) {
            continue;
        }
        let target = parts.names.pass(name, &place)?;
        for (index, source_name) in sources.iter().enumerate().filter(|(_, name)| !parts.names.is_external(name)) {
            let at = place.at(format_args!("[{index}]"));
            let source = parts.names.pass(source_name, &at)?;
            let [Some(consumer), Some(producer)] = [target, source].map(|pass| rows.of(pass)) else {
                let missing = if rows.of(target).is_none() { name } else { source_name };
                return Err(at.fault(format_args!("the pass {} is not scheduled", quoted(missing))));
            };
            if consumer.epoch != producer.epoch {
                return Err(at.fault(format_args!(
                    "{} and {} are in different epochs, at {} and {}: no order holds between epochs",
                    quoted(name),
                    quoted(source_name),
                    consumer.place,
                    producer.place
                )));
            }
            let epoch = &mut schedule.hyperepochs[consumer.epoch.0].epochs[consumer.epoch.1];
            add_between(epoch, source, target, Reason::Declared);
        }
    }
    Ok(())
}

fn check_cycles(epoch: &Epoch) -> Result<()> {
    let Some(cycle) = cycle(epoch.runnables.len(), &epoch.edges()) else { return Ok(()) };
    let mut passes: Vec<&str> =
        cycle.iter().map(|&number| epoch.runnables[number as usize].name.trim_end_matches("_submittee")).collect();
    passes.dedup();
    let more = if passes.len() > 16 { " -> ..." } else { "" };
    passes.truncate(16);
    Err(epoch.place.at(".passes").fault(format_args!(
        "the passes {}{more} wait for each other in a cycle: mark one of the connections `indirect`",
        passes.join(" -> ")
    )))
}
