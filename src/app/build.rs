//! From the form of a schedule to its hyperepochs and epochs.

use std::collections::HashMap;
use std::sync::Arc;

use super::depend;
use super::fault::{Place, Warning, quoted};
use super::files::Files;
use super::forms::{EpochForm, HyperepochForm, Map, Object, ScheduleForm};
use super::names::Names;
use super::parts::{Component, Connection, Pass, PassId};
use super::processor::Processor;
use super::resources::Resources;
use super::rows::Rows;
use super::schedule::{AliasGroup, Epoch, Hyperepoch, Mutex, Role, Runnable, StmSchedule};
use super::wcet::WCET_DEFAULT_NS;
use crate::error::Result;

/// The longest period, in nanoseconds.
const PERIOD_NS_MAX: u64 = 1_000_000_000_000_000;
/// The most frames of an epoch in one period of its hyperepoch.
const FRAMES_MAX: u32 = 1 << 16;

/// The most schedules.
const SCHEDULES_MAX: usize = 256;
/// The most hyperepochs and epochs of all schedules. Each epoch looks through all passes.
const EPOCHS_MAX: usize = 4096;
/// The most resources of all schedules. Each may list all passes.
const RESOURCES_MAX: usize = 4096;
/// The most runnables and dependencies of all schedules: each schedule has its own for the same components.
const RUNNABLES_MAX: usize = 1 << 22;

/// What all schedules of an application share.
pub(super) struct Parts<'a> {
    pub(super) components: &'a [Component],
    pub(super) passes: &'a [Pass],
    pub(super) connections: &'a [Connection],
    pub(super) names: &'a Names<'a>,
}

/// The costs of one schedule.
#[derive(Default)]
struct Costs {
    /// None if the schedule names no file.
    file: Option<String>,
    by_key: HashMap<String, f64>,
}

impl Costs {
    fn read(form: &ScheduleForm, start: &Place, files: &mut Files<'_>, warnings: &mut Vec<Warning>) -> Result<Self> {
        let Some(relative) = &form.wcet else {
            let text = format!("the schedule names no file of costs as `wcet`: each runnable costs {} us", WCET_DEFAULT_NS / 1e3);
            warnings.push(Warning::new(start, text));
            return Ok(Self::default());
        };
        let (file, costs) = files.costs(relative, &start.at(".wcet"))?;
        Ok(Self { file: Some(file.display().to_string()), by_key: costs.0.into_iter().collect() })
    }
}

impl Costs {
    /// Returns the cost of a runnable. If there is none, returns the text of a warning, or None if there is a
    /// warning for all of them.
    fn find(&self, component: &Component, pass: &Pass, ending: &str) -> Result<f64, Option<String>> {
        let Some(file) = &self.file else { return Err(None) };
        let default_us = WCET_DEFAULT_NS / 1e3;
        let Some(process) = &component.process else {
            let name = quoted(&format!("{}{ending}", pass.name));
            return Err(Some(format!("{name} is in no process, so {file} has no key for it: it costs {default_us} us")));
        };
        let key = format!("{process}.{}_pass_{}{ending}", component.name.replace('.', "_"), pass.number);
        let missing = || Some(format!("{} is not in {file}: it costs {default_us} us", quoted(&key)));
        self.by_key.get(&key).copied().ok_or_else(missing)
    }
}

/// Builds all schedules of an application. `start` is the place of its file.
pub(super) fn schedules(
    forms: &Map<Object<ScheduleForm>>,
    parts: &Parts<'_>,
    start: &Place,
    files: &mut Files<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<StmSchedule>> {
    let count = forms.iter().count();
    if count > SCHEDULES_MAX {
        let place = start.at("stmSchedules");
        return Err(place.fault(format_args!("{count} schedules, the limit is {SCHEDULES_MAX}")));
    }
    let (mut schedules, mut epochs, mut resources, mut runnables) = (Vec::new(), 0, 0, 0);
    for (name, form) in forms.iter() {
        let place = start.at(format_args!("stmSchedules.{name}"));
        for (_, hyperepoch) in form.hyperepochs.iter() {
            epochs += 1 + hyperepoch.epochs.iter().count();
            resources += hyperepoch.resources.iter().count();
        }
        for (what, count, limit) in [("hyperepochs and epochs", epochs, EPOCHS_MAX), ("resources", resources, RESOURCES_MAX)] {
            if count > limit {
                return Err(place.fault(format_args!("{count} {what} in all schedules up to here, the limit is {limit}")));
            }
        }
        let schedule = schedule(name, form, parts, &place, files, warnings)?;
        let built = schedule.hyperepochs.iter().flat_map(|hyperepoch| &hyperepoch.epochs);
        runnables += built.map(|epoch| epoch.runnables.len() + epoch.dependencies.len()).sum::<usize>();
        if runnables > RUNNABLES_MAX {
            return Err(place.fault(format_args!(
                "all schedules up to here have more than {RUNNABLES_MAX} runnables and dependencies between them"
            )));
        }
        schedules.push(schedule);
    }
    Ok(schedules)
}

/// Builds a schedule. `start` is its place.
fn schedule(
    name: &str,
    form: &ScheduleForm,
    parts: &Parts<'_>,
    start: &Place,
    files: &mut Files<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<StmSchedule> {
    let costs = Costs::read(form, start, files, warnings)?;
    let rows = Rows::read(form, parts.names, parts.passes, start, warnings)?;
    let mut hyperepochs = Vec::new();
    for (number, (name, form)) in form.hyperepochs.iter().enumerate() {
        let place = start.at(format_args!(".hyperepochs.{name}"));
        hyperepochs.push(hyperepoch(number, name, form, &rows, parts, &costs, &place, warnings)?);
    }
    let mut schedule = StmSchedule { name: name.to_owned().into(), hyperepochs };
    depend::connect(&mut schedule, form, &rows, parts, start, warnings)?;
    Ok(schedule)
}

#[allow(clippy::too_many_arguments)]
fn hyperepoch(
    number: usize,
    name: &str,
    form: &HyperepochForm,
    rows: &Rows,
    parts: &Parts<'_>,
    costs: &Costs,
    place: &Place,
    warnings: &mut Vec<Warning>,
) -> Result<Hyperepoch> {
    let period_ns = period(form.period, &place.at(".period"))?;
    let mut resources = Resources::read(&form.resources, parts.names, &place.at(".resources"), warnings)?;
    let mut epochs = Vec::new();
    for (index, (name, form)) in form.epochs.iter().enumerate() {
        let place = place.at(format_args!(".epochs.{name}"));
        let mut epoch = epoch(name, form, period_ns, &place, warnings)?;
        epoch.runnables = runnables((number, index), rows, parts, costs, &mut resources, &place, warnings);
        epoch.alias_groups = alias_groups(form, (number, index), &mut epoch.runnables, rows, parts, &place)?;
        epochs.push(epoch);
    }
    let Resources { engines, mutexes, streams, .. } = resources;
    let engines: Arc<[_]> = engines.into();
    epochs.iter_mut().for_each(|epoch| epoch.engines = engines.clone());
    Ok(Hyperepoch { name: name.to_owned().into(), period_ns, engines, mutexes, streams, epochs })
}

fn period(ns: u64, place: &Place) -> Result<u64> {
    if ns == 0 || ns > PERIOD_NS_MAX {
        return Err(place.fault(format_args!("a period of {ns} ns: a period is from 1 to 10^15")));
    }
    Ok(ns)
}

fn epoch(name: &str, form: &EpochForm, around_ns: u64, place: &Place, warnings: &mut Vec<Warning>) -> Result<Epoch> {
    let period_ns = form.period.map_or(Ok(around_ns), |ns| period(ns, &place.at(".period")))?;
    let frames = form.frames.unwrap_or(1);
    let at = place.at(".frames");
    if frames == 0 || frames > FRAMES_MAX {
        return Err(at.fault(format_args!("{frames} frames: an epoch has from 1 to {FRAMES_MAX}")));
    }
    let total = u128::from(period_ns) * u128::from(frames);
    if total > u128::from(around_ns) {
        let text = format!("{frames} frames of {period_ns} ns are longer than the hyperepoch, which has {around_ns} ns");
        warnings.push(Warning::new(&at, text));
    }
    Ok(Epoch {
        name: name.to_owned().into(),
        period_ns,
        frames,
        phases: form.passes.0.len().saturating_sub(1) as u32,
        runnables: Vec::new(),
        dependencies: Vec::new(),
        links: Vec::new(),
        alias_groups: Vec::new(),
        by_item: Vec::new(),
        engines: Arc::new([]),
        place: place.clone(),
    })
}

/// Returns the runnables of an epoch: one for a pass on a CPU, two for a pass on a device.
fn runnables(
    epoch: (usize, usize),
    rows: &Rows,
    parts: &Parts<'_>,
    costs: &Costs,
    resources: &mut Resources,
    place: &Place,
    warnings: &mut Vec<Warning>,
) -> Vec<Runnable> {
    let mut runnables = Vec::new();
    for (id, placed) in rows.passes(epoch) {
        let pass = &parts.passes[id.index()];
        let component = &parts.components[pass.component.index()];
        let mutexes = held(&resources.mutexes, id);
        let roles = match pass.processor.is_device() {
            false => &[(Role::Run, Processor::Cpu, "")][..],
            true => &[(Role::Submitter, Processor::Cpu, ""), (Role::Submittee, pass.processor, "_submittee")],
        };
        for &(role, processor, ending) in roles {
            let engine = resources.engine(component, id, processor, place, warnings);
            let found = costs.find(component, pass, ending).map_err(|missing| {
                warnings.extend(missing.map(|text| Warning::new(&placed.place, text)));
            });
            let found = found.ok();
            runnables.push(Runnable {
                name: if ending.is_empty() { pass.name.clone() } else { format!("{}{ending}", pass.name).into() },
                pass: id,
                role,
                row: placed.row,
                engine,
                cost_ns: found.unwrap_or(WCET_DEFAULT_NS),
                is_default_cost: found.is_none(),
                mutexes: mutexes.clone(),
                turn: None,
            });
        }
    }
    runnables
}

fn held(mutexes: &[Mutex], pass: PassId) -> Vec<u32> {
    let held = mutexes.iter().zip(0..).filter(|(mutex, _)| mutex.passes.binary_search(&pass).is_ok());
    held.map(|(_, number)| number).collect()
}

/// Reads the alias groups of an epoch, and gives its runnables their turns.
fn alias_groups(
    form: &EpochForm,
    epoch: (usize, usize),
    runnables: &mut [Runnable],
    rows: &Rows,
    parts: &Parts<'_>,
    place: &Place,
) -> Result<Vec<AliasGroup>> {
    let (mut groups, mut turns) = (Vec::new(), HashMap::new());
    for (number, (name, members)) in form.alias_groups.iter().enumerate() {
        let start = place.at(format_args!(".aliasGroups.{name}"));
        for (turn, member) in members.iter().enumerate() {
            let at = start.at(format_args!("[{turn}]"));
            for pass in parts.names.find(member, &at)?.passes {
                if rows.of(pass).is_none_or(|placed| placed.epoch != epoch) {
                    return Err(at.fault(format_args!("{} is not scheduled in this epoch", quoted(member))));
                }
                if turns.insert(pass, (number as u32, turn as u32)).is_some() {
                    return Err(at.fault(format_args!("{} is in two alias groups, or twice in one", quoted(member))));
                }
            }
        }
        let components = members.iter().map(|member| member.clone().into()).collect();
        groups.push(AliasGroup { name: name.to_owned().into(), components });
    }
    runnables.iter_mut().for_each(|runnable| runnable.turn = turns.get(&runnable.pass).copied());
    Ok(groups)
}
