//! The commands.

use std::path::Path;

use anabranch::graph::Shape;
use anabranch::plan::Schedule;
use anabranch::policy::{Policy, Single};
use anabranch::sim::{Order, Simulation};
use clap::ValueEnum;

use crate::args::{
    Args, Command, CompareFormat, MachineArgs, PipelineFormat, PlanFormat, PolicyName, SimulateFormat, StreamFormat, format_of,
};
use crate::form::PlanForm;
use crate::{Failure, compare, files, form, pipeline, ranks, stream};

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Plan { graph, ranks, format, out } => {
            let policy = graph.policy(None)?;
            if let Some(count) = ranks.ranks {
                let format = format_of(*format, out.as_deref(), PlanFormat::Text)?;
                return files::write(out.as_deref(), &ranks::plan(&graph.file, count, ranks, &*policy, format)?);
            }
            let schedule = schedule(&graph.file, &files::graph(&graph.file)?, &*policy)?;
            let text = match format_of(*format, out.as_deref(), PlanFormat::Text)? {
                PlanFormat::Text => schedule.to_string(),
                PlanFormat::Json => schedule.to_json() + "\n",
                PlanFormat::Dot => schedule.to_dot(),
                PlanFormat::Svg => schedule.to_svg(&schedule.spans()),
            };
            files::write(out.as_deref(), &text)
        }
        Command::Simulate { graph, machine, ranks, seed, replay, explore, format, out } => {
            let policy = graph.policy(Some(machine.hand_off_us))?;
            let format = format_of(*format, out.as_deref(), SimulateFormat::Text)?;
            if let Some(count) = ranks.ranks {
                if seed.is_some() || replay.is_some() || explore.is_some() {
                    let why = "--seed, --replay and --explore are for one rank: leave out --ranks";
                    return Err(Failure::Usage(why.into()));
                }
                let schedules = ranks::schedules(&graph.file, files::graph(&graph.file)?, count, &*policy)?;
                return files::write(out.as_deref(), &ranks::simulate(&schedules, ranks, machine, format)?);
            }
            let schedule = schedule(&graph.file, &files::graph(&graph.file)?, &*policy)?;
            let order = match (seed, replay) {
                (Some(seed), _) => Order::Seeded(*seed),
                (None, Some(choices)) => Order::Replay(choices.clone()),
                (None, None) => Order::InOrder,
            };
            let simulation = simulation(&schedule, machine).order(order);
            let text = match explore {
                Some(_) if !matches!(format, SimulateFormat::Text) => {
                    let why = "--explore reports in text: let the file end in .txt";
                    return Err(Failure::Usage(why.into()));
                }
                Some(orders_max) => explored(&simulation, *orders_max)?,
                None => simulated(&schedule, &simulation, *seed, format)?,
            };
            files::write(out.as_deref(), &text)
        }
        Command::Verify { file, policy, ranks, plan } => match (ranks.ranks, plan) {
            (Some(_), Some(_)) => Err(Failure::Usage("--plan is the plan of one rank: leave out --ranks".into())),
            (Some(count), None) => verify_ranks(file, *policy, count),
            (None, plan) => verify_plans(file, *policy, plan.as_deref()),
        },
        Command::Compare { file, max_streams, machine, format, out } => {
            let shape = files::graph(file)?;
            let format = format_of(*format, out.as_deref(), CompareFormat::Text)?;
            let text = compare::text(&shape, *max_streams, machine, format)?;
            files::write(out.as_deref(), &text)
        }
        Command::Stream { stream, format, out } => {
            let format = format_of(*format, out.as_deref(), StreamFormat::Text)?;
            files::write(out.as_deref(), &stream::text(stream, format)?)
        }
        Command::Pipeline { pipeline, format, out } => {
            let format = format_of(*format, out.as_deref(), PipelineFormat::Text)?;
            files::write(out.as_deref(), &pipeline::text(pipeline, format)?)
        }
    }
}

fn schedule(file: &Path, shape: &Shape, policy: &dyn Policy) -> Result<Schedule, Failure> {
    shape.schedule_with(policy).map_err(|error| Failure::Invalid(format!("{}: {error}", file.display())))
}

pub(crate) fn simulation(schedule: &Schedule, machine: &MachineArgs) -> Simulation {
    Simulation::new(schedule).slots(machine.slots()).hand_off_us(machine.hand_off_us)
}

fn simulated(schedule: &Schedule, simulation: &Simulation, seed: Option<u64>, format: SimulateFormat) -> Result<String, Failure> {
    let log = simulation.run().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(match format {
        SimulateFormat::Text => {
            let (makespan, critical) = (log.makespan_us(), schedule.critical_path_us());
            let choices: Vec<String> = log.choices().iter().map(ToString::to_string).collect();
            let choices = if choices.is_empty() { String::new() } else { format!("choices {}\n", choices.join(",")) };
            let unseen = if log.races().is_none() { ", too large to look for races" } else { "" };
            format!(
                "{log}makespan {makespan:.3} us, critical path {critical:.3} us, policy {}{unseen}\n{choices}",
                schedule.policy()
            )
        }
        SimulateFormat::Json => form::simulation(schedule, seed, &log),
        SimulateFormat::Svg => schedule.to_svg(&log.spans()),
        SimulateFormat::Perfetto => schedule.to_perfetto(&log.spans()) + "\n",
    })
}

fn explored(simulation: &Simulation, orders_max: u64) -> Result<String, Failure> {
    let mut races = Vec::new();
    let explored = simulation.explore(orders_max, |log| {
        if races.is_empty() {
            races.extend(log.races().unwrap_or_default().iter().map(ToString::to_string));
        }
        Ok(())
    });
    let explored = explored.map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(race) = races.first() {
        return Err(Failure::Invalid(race.clone()));
    }
    let orders = explored.orders;
    Ok(match explored.is_complete {
        true => format!("{orders} orders, and no others: each ends, without a race\n"),
        false => format!("{orders} orders tried, and there are more: each of these ends, without a race\n"),
    })
}

fn verify_ranks(file: &Path, policy: Option<PolicyName>, ranks: u32) -> Result<(), Failure> {
    let shape = files::graph(file)?;
    let mut text = String::new();
    for name in PolicyName::value_variants().iter().filter(|name| policy.is_none_or(|policy| policy == **name)) {
        let policy = name.policy(None, None);
        let schedules = ranks::schedules(file, shape.clone(), ranks, &*policy)?;
        let invalid = |error| Failure::Invalid(format!("{}: policy {}: {error}", file.display(), policy.name()));
        schedules.verify().map_err(invalid)?;
        text += &format!("{}: keeps every edge on {ranks} ranks, and no rank waits for ever\n", policy.name());
    }
    files::write(None, &text)
}

fn verify_plans(file: &Path, policy: Option<PolicyName>, plan: Option<&Path>) -> Result<(), Failure> {
    if plan.is_some_and(|plan| plan == file && plan.as_os_str() == "-") {
        return Err(Failure::Usage("the graph and the plan cannot both come from the standard input".into()));
    }
    let shape = files::graph(file)?;
    if let Some(plan) = plan {
        let invalid = |fault: &dyn std::fmt::Display| Failure::Invalid(format!("{}: {fault}", plan.display()));
        let text = files::text(plan)?;
        let mut reader = serde_json::Deserializer::from_str(&text);
        let form: PlanForm = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| invalid(&format_args!("{error}: is it what `anabranch plan --format json` prints?")))?;
        reader.end().map_err(|error| invalid(&error))?;
        let any = schedule(file, &shape, &Single)?;
        for (number, (shape, programs)) in form.programs(&any).map_err(|fault| invalid(&fault))?.into_iter().enumerate() {
            let within = if number == 0 { String::new() } else { format!("in '{}': ", any.inner_path(number - 1)) };
            shape.verify_programs(&programs).map_err(|error| invalid(&format_args!("{within}{error}")))?;
        }
        return files::write(None, &format!("{}: keeps every edge, and every wait is needed\n", plan.display()));
    }
    let policies = PolicyName::value_variants().iter().filter(|name| policy.is_none_or(|policy| policy == **name));
    let mut text = String::new();
    for name in policies {
        let schedule = schedule(file, &shape, &*name.policy(None, None))?;
        let invalid = |error| Failure::Invalid(format!("{}: policy {}: {error}", file.display(), schedule.policy()));
        schedule.verify().map_err(invalid)?;
        let waits = match schedule.waits() {
            0 => "without a wait".to_owned(),
            1 => "with one wait, which is needed".to_owned(),
            waits => format!("with {waits} waits, and every one is needed"),
        };
        text += &format!("{}: keeps every edge {waits}\n", schedule.policy());
    }
    files::write(None, &text)
}
