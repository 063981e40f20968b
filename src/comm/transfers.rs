//! A graph whose nodes run on different ranks: the nodes that carry a value from the rank that makes it to
//! those that read it, and the part of each rank.
//!
//! ```text
//!  x on rank 0, y on rank 1       rank 0: x, 'x to rank 1'      rank 1: 'x from rank 0', y
//!  x on rank 0, y on all ranks    rank 0: x, 'x to all', y      others: 'x to all', y
//! ```

use std::any::TypeId;
use std::sync::Arc;

use super::combine::{broadcast_of, nothing, receive_of, send_of};
use super::op::{Place, Spec};
use super::perform::{agree, perform};
use super::run_comm::RunComm;
use super::wire::{Form, Wire};
use crate::error::{Kind, Result};
use crate::graph::{Edge, Exchange, Graph, Job, JobFuture, NodeId, Ranks, Shared, SharedContext};
use crate::name::Name;
use crate::plan::Elsewhere;
use crate::ranks::{Added, Reach, Transfer, Transfers, Unit};

impl Graph {
    /// Says that values of type `T` may cross from rank to rank, where [`NodeMut::rank`] lets a node read one
    /// of another rank. Numbers, `bool`, `String` and `Vec`s of numbers may do so without this. With the
    /// feature `serde`, `Graph::wire_serde` is for types with `serde`.
    ///
    /// [`NodeMut::rank`]: crate::graph::NodeMut::rank
    ///
    /// # Examples
    /// ```
    /// use anabranch::Graph;
    /// use anabranch::comm::World;
    ///
    /// let mut g = Graph::new();
    /// let corner = g.task("corner", (), || [0.5_f32, 1.5, -2.0]);
    /// let length = g.task("length", &corner, |x: &[f32; 3]| x.iter().map(|x| x * x).sum::<f32>().sqrt());
    /// g.node(&corner).rank(0);
    /// g.node(&length).rank(1);
    /// g.output("length", &length);
    /// g.wire::<[f32; 3]>();
    /// for world in World::local(2)? {
    ///     println!("{}", g.compile_for(&world)?);
    /// }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn wire<T: Wire>(&mut self) {
        self.wires.insert(TypeId::of::<T>(), Arc::new(Form::of::<T>()));
    }
}

/// A graph with its transfers. All ranks have the same, but for the bodies of the transfers.
pub(super) struct Spread {
    pub(super) graph: Graph,
    place: Place,
    /// The node of each transfer at which its value arrives.
    arrivals: Vec<(Transfer, NodeId)>,
}

impl Spread {
    /// Adds the transfers to a copy of the graph.
    ///
    /// # Errors
    /// If how a value crosses is not known.
    pub(super) fn new(graph: &Graph, unit: &Unit, place: Place) -> Result<Self> {
        let transfers = Transfers::of(graph.shape());
        let mut adding = Adding { graph: graph.copy(), place, sends: Vec::new() };
        let mut arrivals = Vec::with_capacity(transfers.all.len());
        for added in transfers.added(graph.shape(), place.size, !unit.inside.is_empty()) {
            let transfer = transfers.all[added.transfer];
            arrivals.extend(adding.add(&added, &transfer)?.map(|node| (transfer, node)));
        }
        // Behind all of them: a transfer asks for the node that takes its value.
        for Transfer { source, output, from, .. } in transfers.all.iter().copied() {
            output.into_iter().for_each(|output| adding.graph.leave_to(source, output, from));
        }
        let mut spread = Self { graph: adding.graph, place, arrivals };
        let arrival = |edge: &Edge| transfers.serving(graph.shape(), edge).map(|at| spread.arrivals[at as usize].1);
        let sources: Vec<Option<NodeId>> = graph.shape().edges().iter().map(arrival).collect();
        spread.let_read(graph, &sources);
        Ok(spread)
    }

    /// Lets edges begin at the transfers that serve them. `sources` has these for the first edges.
    fn let_read(&mut self, original: &Graph, sources: &[Option<NodeId>]) {
        let Graph { works, kept, .. } = &mut self.graph;
        for (edge, source) in original.shape().edges().iter().zip(sources) {
            let (Some(source), true) = (source, edge.is_data()) else { continue };
            let (from, to) = (original.value_of(edge), works[source.index()].value);
            let keeps = kept.iter_mut().filter(|(keeper, value)| *keeper == edge.target && *value == from);
            keeps.for_each(|(_, value)| *value = to);
        }
        for (edge, source) in self.graph.shape_mut().edges_mut().iter_mut().zip(sources) {
            source.iter().for_each(|source| *edge = edge.reading(*source, 0));
        }
    }

    /// Returns the part of this rank.
    pub(super) fn part(mut self) -> Graph {
        let rank = self.place.rank;
        // On the rank that makes a value, all readers read it where it is.
        let own: Vec<_> =
            self.arrivals.iter().filter(|(transfer, _)| transfer.from == rank && transfer.to == Reach::Others).collect();
        let Graph { works, kept, .. } = &mut self.graph;
        for (transfer, node) in &own {
            let values = [*node, transfer.source].map(|node| works[node.index()].value);
            let keeps = kept.iter_mut().filter(|(_, value)| *value == values[0]);
            keeps.for_each(|(_, value)| *value = values[1] + transfer.output.unwrap_or(0));
        }
        let instead = |node: NodeId| own.binary_search_by_key(&node, |(_, node)| *node).ok().map(|at| own[at].0);
        for edge in self.graph.shape_mut().edges_mut() {
            if let Some(transfer) = instead(edge.source) {
                *edge = edge.reading(transfer.source, transfer.output.unwrap_or(0));
            }
        }
        let shape = self.graph.shape();
        let mut is_in: Vec<bool> = shape.nodes().iter().map(|node| Ranks::has(node.ranks, rank)).collect();
        for (_, node) in own {
            let is_message = shape.nodes()[node.index()].communication.as_ref().is_some_and(|is| !is.is_collective());
            is_in[node.index()] &= !is_message;
        }
        // A transfer to all ranks reads nothing on the ranks that get the value.
        self.graph.shape_mut().edges_mut().retain(|edge| is_in[edge.source.index()]);
        let mut part = self.graph.part(&is_in);
        if part.context.is_some() && part.shape().nodes().iter().all(|node| node.communication.is_none()) {
            add_agreement(&mut part);
        }
        part
    }

    /// Returns what goes into runs on other ranks, and comes out there.
    pub(super) fn elsewhere(graph: &Graph, part: &Graph) -> Elsewhere {
        let is_missing = |name: &Name| !part.inputs.iter().any(|port| port.name == *name);
        let inputs = graph.inputs.iter().map(|port| port.name.clone()).filter(is_missing);
        let outputs = graph.outputs_by_node().filter_map(|(name, node)| {
            let is_here = part.outputs.iter().any(|port| port.name == *name);
            let rank = Ranks::one(graph.shape().nodes()[node.index()].ranks)?;
            (!is_here).then(|| (name.clone(), rank))
        });
        Elsewhere { inputs: inputs.collect(), outputs: outputs.collect() }
    }
}

/// Adds a node that takes part in the agreement of the ranks, to a part without operations outside of its
/// loops and branches.
fn add_agreement(part: &mut Graph) {
    let mut name = "agreement".to_owned();
    while part.shape().nodes().iter().any(|node| *node.name == *name) {
        name.push('\'');
    }
    let mut job = part.job(name.into());
    job.read_context();
    _ = job.make::<()>();
    job.end(Box::new(Agree));
}

struct Agree;

impl Job for Agree {
    fn start(&self, _: Vec<Shared>, context: Option<SharedContext>) -> JobFuture {
        let run = RunComm::of(context);
        Box::pin(async move { Ok(vec![agree(run).await?]) })
    }
}

struct Adding {
    graph: Graph,
    place: Place,
    /// The sends of the transfer whose receive is not added yet.
    sends: Vec<NodeId>,
}

impl Adding {
    /// Adds a node of a transfer. Returns it, if the value arrives there.
    fn add(&mut self, added: &Added, transfer: &Transfer) -> Result<Option<NodeId>> {
        let form = self.form(transfer)?;
        let (ranks, exchange) = added.exchange(transfer);
        Ok(match exchange {
            Exchange::SendTo { to } => {
                let send = self.send(transfer, &added.name, send_of(form, to));
                self.sends.push(send);
                None
            }
            Exchange::RecvFrom { from } => Some(self.arrive(transfer, &added.name, receive_of(form, from), ranks)),
            _ => Some(self.broadcast(transfer, &added.name, broadcast_of(form, transfer.from))),
        })
    }

    fn form(&self, transfer: &Transfer) -> Result<Form> {
        let Some(output) = transfer.output else { return Ok(Form::of::<()>()) };
        let of = self.graph.type_of(transfer.source, output);
        let own = self.graph.wires.get(&of.id).and_then(|form| form.downcast_ref::<Form>());
        own.copied().or_else(|| Form::of_known(of.id)).ok_or_else(|| {
            let to = match transfer.to {
                Reach::One(rank) => format!("rank {rank}"),
                Reach::Others => "all ranks".into(),
            };
            let fault = format!(
                "gives a `{of}` from rank {from} to {to}, and how such a value crosses is not known: say `g.wire::<{of}>()`, or `g.wire_serde::<{of}>()` with the feature `serde`, or let the ranks exchange numbers, a `String` or a `Vec` of numbers",
                of = of.name,
                from = transfer.from
            );
            Kind::Body { node: self.graph.full_name(transfer.source), fault }.into()
        })
    }

    fn send(&mut self, transfer: &Transfer, name: &Name, spec: Spec) -> NodeId {
        let is_here = self.place.rank == transfer.from;
        let value = self.value(transfer);
        let mut job = self.graph.job(name.clone());
        job.transfer(spec.communication.clone(), Ranks::One(transfer.from));
        match value {
            Some(value) => job.read_number(value, is_here),
            None => job.after(transfer.source),
        }
        _ = job.make::<()>();
        let node = job.node();
        job.end(Box::new(CommunicationBody { name: name.clone(), spec: Arc::new(spec), makes: true }));
        node
    }

    /// Adds the node at which a value arrives as a message.
    fn arrive(&mut self, transfer: &Transfer, name: &Name, spec: Spec, ranks: Ranks) -> NodeId {
        let (value, taker, sends) = (self.value(transfer), self.taker(transfer), std::mem::take(&mut self.sends));
        let mut job = self.graph.job(name.clone());
        job.transfer(spec.communication.clone(), ranks);
        sends.into_iter().for_each(|send| job.after(send));
        match value {
            Some(value) => job.make_again(value, taker, true),
            None => _ = job.make::<()>(),
        }
        let node = job.node();
        job.end(Box::new(CommunicationBody { name: name.clone(), spec: Arc::new(spec), makes: true }));
        node
    }

    fn broadcast(&mut self, transfer: &Transfer, name: &Name, spec: Spec) -> NodeId {
        let (value, taker) = (self.value(transfer), self.taker(transfer));
        let is_root = self.place.rank == transfer.from;
        let mut job = self.graph.job(name.clone());
        job.transfer(spec.communication.clone(), Ranks::Same);
        match value {
            Some(value) => {
                job.read_number(value, is_root);
                job.make_again(value, taker, !is_root);
            }
            None => {
                job.after(transfer.source);
                _ = job.make::<()>();
            }
        }
        let (node, makes) = (job.node(), !is_root || value.is_none());
        job.end(Box::new(CommunicationBody { name: name.clone(), spec: Arc::new(spec), makes }));
        node
    }

    /// Returns the number of the value that crosses.
    fn value(&self, transfer: &Transfer) -> Option<u32> {
        Some(self.graph.works[transfer.source.index()].value + transfer.output?)
    }

    /// Returns the node that takes the value where it arrives.
    fn taker(&self, transfer: &Transfer) -> Option<NodeId> {
        let taker = self.graph.values[self.value(transfer)? as usize].taker?;
        let at = Ranks::one(self.graph.shape().nodes()[taker.index()].ranks);
        match transfer.to {
            Reach::One(to) => (at == Some(to)).then_some(taker),
            Reach::Others => (at != Some(transfer.from)).then_some(taker),
        }
    }
}

/// The body of a node that communicates.
pub(super) struct CommunicationBody {
    pub(super) name: Name,
    pub(super) spec: Arc<Spec>,
    /// Whether this rank gets a value by it.
    pub(super) makes: bool,
}

impl Job for CommunicationBody {
    fn start(&self, given: Vec<Shared>, context: Option<SharedContext>) -> JobFuture {
        let run = RunComm::of(context);
        let given = given.into_iter().next().unwrap_or_else(nothing);
        let (name, spec, makes) = (self.name.clone(), self.spec.clone(), self.makes);
        Box::pin(async move {
            let made = perform(run, name, spec, given).await?;
            Ok(if makes { vec![made] } else { Vec::new() })
        })
    }
}
