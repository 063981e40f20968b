//! What each command does.

use std::path::Path;

use anabranch::{Order, Policy, Schedule, Shape, Simulation, verify};
use clap::ValueEnum;

use crate::args::{Args, Command, MachineArgs, PlanFormat, PolicyName, SimulateFormat};
use crate::form::PlanForm;
use crate::{Failure, compare, files, form};

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Plan { graph, format, out } => {
            let policy = graph.policy()?;
            let schedule = schedule(&graph.file, &files::graph(&graph.file)?, &*policy)?;
            let text = match format {
                PlanFormat::Text => schedule.to_string(),
                PlanFormat::Json => schedule.to_json() + "\n",
                PlanFormat::Dot => schedule.to_dot(),
                PlanFormat::Svg => schedule.to_svg(&schedule.spans()),
            };
            files::write(out.as_deref(), &text)
        }
        Command::Simulate { graph, machine, seed, explore, format, out } => {
            let policy = graph.policy()?;
            let schedule = schedule(&graph.file, &files::graph(&graph.file)?, &*policy)?;
            let simulation = simulation(&schedule, machine);
            let text = match explore {
                Some(orders_max) => explored(&simulation, *orders_max)?,
                None => simulated(&schedule, simulation, *seed, *format)?,
            };
            files::write(out.as_deref(), &text)
        }
        Command::Verify { file, policy, plan } => verify_plans(file, *policy, plan.as_deref()),
        Command::Compare { file, max_streams, machine, format, out } => {
            let shape = files::graph(file)?;
            let text = compare::text(file, &shape, *max_streams, machine, *format)?;
            files::write(out.as_deref(), &text)
        }
    }
}

pub(crate) fn schedule(file: &Path, shape: &Shape, policy: &dyn Policy) -> Result<Schedule, Failure> {
    shape.schedule(policy).map_err(|error| Failure::Invalid(format!("{}: {error}", file.display())))
}

pub(crate) fn simulation(schedule: &Schedule, machine: &MachineArgs) -> Simulation {
    Simulation::new(schedule).slots(machine.slots()).hand_off_us(machine.hand_off_us)
}

fn simulated(schedule: &Schedule, simulation: Simulation, seed: Option<u64>, format: SimulateFormat) -> Result<String, Failure> {
    let log =
        simulation.order(seed.map_or(Order::InOrder, Order::Seeded)).run().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(match format {
        SimulateFormat::Text => {
            let (makespan, critical) = (log.makespan_us(), schedule.critical_path_us());
            format!("{log}makespan {makespan:.3} us, critical path {critical:.3} us, policy {}\n", schedule.policy())
        }
        SimulateFormat::Json => form::simulation(schedule, seed, &log),
        SimulateFormat::Svg => schedule.to_svg(&log.spans()),
        SimulateFormat::Perfetto => schedule.to_perfetto(&log.spans()) + "\n",
    })
}

fn explored(simulation: &Simulation, orders_max: u64) -> Result<String, Failure> {
    let explored = simulation.explore(orders_max, |_| Ok(())).map_err(|error| Failure::Usage(error.to_string()))?;
    let all = if explored.is_complete { "all orders" } else { "orders, and there are more" };
    Ok(format!("{} {all}: every one ends\n", explored.orders))
}

fn verify_plans(file: &Path, policy: Option<PolicyName>, plan: Option<&Path>) -> Result<(), Failure> {
    let shape = files::graph(file)?;
    if let Some(plan) = plan {
        let invalid = |fault: &dyn std::fmt::Display| Failure::Invalid(format!("{}: {fault}", plan.display()));
        let text = files::text(plan)?;
        let mut reader = serde_json::Deserializer::from_str(&text);
        let form: PlanForm = serde_path_to_error::deserialize(&mut reader).map_err(|error| invalid(&error))?;
        let programs = form.programs(&shape).map_err(|fault| invalid(&fault))?;
        verify(&shape, &programs).map_err(|error| invalid(&error))?;
        return files::write(None, &format!("{}: keeps every edge, and every wait is needed\n", plan.display()));
    }
    let policies = PolicyName::value_variants().iter().filter(|name| policy.is_none_or(|policy| policy == **name));
    let mut text = String::new();
    for name in policies {
        let schedule = schedule(file, &shape, &*name.policy(None))?;
        let invalid = |error| Failure::Invalid(format!("{}: policy {}: {error}", file.display(), schedule.policy()));
        schedule.verify().map_err(invalid)?;
        text += &format!("{}: keeps every edge with {} waits\n", schedule.policy(), schedule.waits());
    }
    files::write(None, &text)
}
