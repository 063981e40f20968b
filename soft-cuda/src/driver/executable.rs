//! Executable graphs: a copy of a graph whose parameters can be changed, launched as one piece of work of a
//! stream.
//!
//! Only the edges of the graph order its nodes. So a missing edge is found as a race, although the nodes are
//! executed one by one.

use std::sync::{Arc, Mutex};

use super::clock::{Clock, Kept, new_component};
use super::command::Command;
use super::graph::{Graph, Node};
use super::issue::Issuer;
use super::lock;
use super::queue::{Launched, Work};
use super::stream::Stream;
use super::table::Handle;
use crate::code::{Code, Outcome};

struct Step {
    node: Handle,
    /// The predecessors, by their places in the graph.
    after: Vec<usize>,
    component: u32,
}

/// The previous launch: an executable graph runs one launch at a time.
struct Last {
    stream: Arc<Stream>,
    position: u64,
    clock: Kept,
}

struct State {
    steps: Vec<Step>,
    /// The command of each step. Launches share the list, so a launch costs little. Launches in flight keep
    /// their list when it changes.
    commands: Arc<Vec<Command>>,
    last: Option<Last>,
}

impl State {
    /// Issues all commands. `clock` is the clock of the stream.
    fn issue(&self, stream: &Stream, clock: &mut Clock) -> Launched {
        let mut launched = Launched { commands: self.commands.clone(), issued: Vec::new(), _mapped: Vec::new() };
        let tracks = stream.device.tracks_races();
        let mut clocks: Vec<Clock> = Vec::new();
        for (place, step) in self.steps.iter().enumerate() {
            let mut own = clock.clone();
            if tracks {
                step.after.iter().for_each(|&before| own.join(&clocks[before]));
            }
            let mut issuer = Issuer { device: stream.device, stream: stream.number, component: step.component, clock: &mut own };
            let issued = issuer.issue(&self.commands[place], &mut launched._mapped);
            if issued.is_any() {
                launched.issued.push((place, issued));
            }
            if tracks {
                clocks.push(own);
            }
        }
        clocks.iter().for_each(|after| clock.join(after));
        launched
    }
}

/// An executable graph.
pub(crate) struct Executable {
    state: Mutex<State>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph) -> Self {
        let nodes = graph.nodes();
        let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
        let mut commands = Vec::with_capacity(nodes.len());
        let mut is_followed = vec![false; nodes.len()];
        for Node { handle, command, after } in nodes {
            // A chain of nodes needs only one component, so clocks stay short.
            let component = match after.iter().find(|&&before| !is_followed[before]) {
                Some(&before) => {
                    is_followed[before] = true;
                    steps[before].component
                }
                None => new_component(),
            };
            steps.push(Step { node: handle, after, component });
            commands.push(command);
        }
        Self { state: Mutex::new(State { steps, commands: Arc::new(commands), last: None }) }
    }

    /// Changes the operation of a node, which keeps its kind.
    pub(crate) fn set(&self, node: Handle, command: Command) -> Outcome {
        let mut state = lock(&self.state);
        let place = state.steps.iter().position(|step| step.node == node).ok_or(Code::INVALID_VALUE)?;
        if state.commands[place].which() != command.which() {
            return Err(Code::INVALID_VALUE);
        }
        Arc::make_mut(&mut state.commands)[place] = command;
        Ok(())
    }

    /// Takes the operations of the nodes of a graph with the same topology.
    pub(crate) fn update(&self, graph: &Graph) -> Outcome {
        let nodes = graph.nodes();
        let mut state = lock(&self.state);
        let mut own = state.steps.iter().zip(state.commands.iter());
        let is_alike = |((step, command), node): ((&Step, &Command), &Node)| {
            step.after == node.after && command.which() == node.command.which()
        };
        if state.steps.len() != nodes.len() || !own.by_ref().zip(&nodes).all(is_alike) {
            return Err(Code::GRAPH_UPDATE_FAILURE);
        }
        state.commands = Arc::new(nodes.into_iter().map(|node| node.command).collect());
        Ok(())
    }

    pub(crate) fn launch(&self, stream: &Arc<Stream>) -> Outcome {
        let mut state = lock(&self.state);
        let mut issuing = lock(&stream.issuing);
        if let Some(member) = issuing.capturing() {
            member.invalidate();
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        stream.see_host(&mut issuing);
        if let Some(last) = &state.last {
            stream.wait_for(&mut issuing, &last.stream, last.position, &last.clock)?;
        }
        let work = state.issue(stream, &mut issuing.clock);
        let position = stream.push(&mut issuing, Work::Graph(work))?;
        let clock = stream.kept_clock(&mut issuing);
        state.last = Some(Last { stream: stream.clone(), position, clock });
        Ok(())
    }
}
