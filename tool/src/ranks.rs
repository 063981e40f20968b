//! Plans for several ranks.

use std::path::Path;

use anabranch::comm::{Balanced, RankSchedules};
use anabranch::graph::Shape;
use anabranch::policy::Policy;
use anabranch::sim::{SimLog, Simulation};

use crate::args::{MachineArgs, PlanFormat, RankArgs, SimulateFormat};
use crate::{Failure, files};

/// Returns the schedules of all ranks of the graph in a file.
pub(crate) fn schedules(file: &Path, mut shape: Shape, ranks: u32, policy: &dyn Policy) -> Result<RankSchedules, Failure> {
    let invalid = |error: anabranch::Error| Failure::Invalid(format!("{}: {error}", file.display()));
    if shape.nodes().iter().all(|node| node.ranks.is_none() && node.communication.is_none()) {
        shape.partition(&Balanced::default(), ranks).map_err(invalid)?;
    }
    shape.schedule_ranks(ranks, policy).map_err(invalid)
}

pub(crate) fn plan(file: &Path, ranks: u32, args: &RankArgs, policy: &dyn Policy, format: PlanFormat) -> Result<String, Failure> {
    let schedules = schedules(file, files::graph(file)?, ranks, policy)?;
    Ok(match format {
        PlanFormat::Text => format!("{schedules}\n{}\n", summary(&schedules, &log(&schedules, args)?)),
        PlanFormat::Json => schedules.to_json() + "\n",
        PlanFormat::Svg => log(&schedules, args)?.to_svg(),
        PlanFormat::Dot => {
            let why = "--format dot draws the graph of one rank: use --format svg for several, or leave out --ranks";
            return Err(Failure::Usage(why.into()));
        }
    })
}

pub(crate) fn simulate(
    schedules: &RankSchedules,
    args: &RankArgs,
    machine: &MachineArgs,
    format: SimulateFormat,
) -> Result<String, Failure> {
    let simulation = simulation(schedules, args)?.slots(machine.slots()).hand_off_us(machine.hand_off_us);
    let log = simulation.run().map_err(|error| Failure::Usage(error.to_string()))?;
    match format {
        SimulateFormat::Text => Ok(format!("{log}{}\n", summary(schedules, &log))),
        SimulateFormat::Svg => Ok(log.to_svg()),
        SimulateFormat::Json | SimulateFormat::Perfetto => {
            Err(Failure::Usage("over several ranks there are --format text and svg: leave out --ranks for the others".into()))
        }
    }
}

fn simulation(schedules: &RankSchedules, args: &RankArgs) -> Result<Simulation, Failure> {
    Simulation::of_ranks(schedules, &args.links()?).map_err(|error| Failure::Usage(error.to_string()))
}

fn log(schedules: &RankSchedules, args: &RankArgs) -> Result<SimLog, Failure> {
    simulation(schedules, args)?.run().map_err(|error| Failure::Usage(error.to_string()))
}

fn summary(schedules: &RankSchedules, log: &SimLog) -> String {
    let (ranks, nodes) = (schedules.ranks(), schedules.whole().nodes().len());
    let exchanges = schedules.whole().nodes().iter().filter(|node| node.communication.is_some()).count();
    format!("{ranks} ranks, {nodes} nodes, {exchanges} of them exchange values, makespan {:.3} us", log.makespan_us())
}
