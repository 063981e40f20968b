//! Executable graphs: a copy of a graph whose parameters can be changed, launched as one piece of a stream's work.
//!
//! Only the graph's edges order its nodes, so an edge that is missing is found as a race, although they are executed one by one.

use std::sync::{Arc, Mutex};

use super::clock::{Clock, Kept, new_component};
use super::command::Command;
use super::graph::{Graph, Node};
use super::issue::Issuer;
use super::lock;
use super::queue::Work;
use super::stream::Stream;
use super::table::Handle;
use crate::code::{Code, Outcome};

struct Step {
    node: Node,
    component: u32,
}

/// The launch before: one executable graph runs once at a time.
struct Launched {
    stream: Arc<Stream>,
    position: u64,
    clock: Kept,
}

struct State {
    steps: Vec<Step>,
    last: Option<Launched>,
}

/// An executable graph.
pub(crate) struct Executable {
    state: Mutex<State>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut is_followed = vec![false; graph.nodes().len()];
        for node in graph.nodes() {
            // Nodes in a row need only one component, and clocks stay short.
            let component = match node.after.iter().find(|&&before| !is_followed[before]) {
                Some(&before) => {
                    is_followed[before] = true;
                    steps[before].component
                }
                None => new_component(),
            };
            steps.push(Step { node, component });
        }
        Self { state: Mutex::new(State { steps, last: None }) }
    }

    /// Changes what a node does; it stays a node of its kind.
    pub(crate) fn set(&self, node: Handle, command: Command) -> Outcome {
        let mut state = lock(&self.state);
        let step = state.steps.iter_mut().find(|step| step.node.handle == node).ok_or(Code::INVALID_VALUE)?;
        if step.node.command.which() != command.which() {
            return Err(Code::INVALID_VALUE);
        }
        step.node.command = command;
        Ok(())
    }

    /// Takes over what the nodes of a graph of the same shape do.
    pub(crate) fn update(&self, graph: &Graph) -> Outcome {
        let nodes = graph.nodes();
        let mut state = lock(&self.state);
        let is_alike =
            |step: &Step, node: &Node| step.node.after == node.after && step.node.command.which() == node.command.which();
        if state.steps.len() != nodes.len() || !state.steps.iter().zip(&nodes).all(|(step, node)| is_alike(step, node)) {
            return Err(Code::GRAPH_UPDATE_FAILURE);
        }
        for (step, node) in state.steps.iter_mut().zip(nodes) {
            step.node.command = node.command;
        }
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
        let mut clocks: Vec<Clock> = Vec::with_capacity(state.steps.len());
        let mut operations = Vec::with_capacity(state.steps.len());
        for step in &state.steps {
            let mut clock = issuing.clock.clone();
            step.node.after.iter().for_each(|&before| clock.join(&clocks[before]));
            let mut issuer =
                Issuer { device: stream.device, stream: stream.number, component: step.component, clock: &mut clock };
            operations.push(issuer.issue(step.node.command.clone()));
            clocks.push(clock);
        }
        clocks.iter().for_each(|clock| issuing.clock.join(clock));
        let position = stream.push(&mut issuing, Work::Graph(operations))?;
        let clock = stream.kept_clock(&mut issuing);
        state.last = Some(Launched { stream: stream.clone(), position, clock });
        Ok(())
    }
}
