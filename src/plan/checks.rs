//! The checks that a graph must pass before it is compiled: those of its shape, and those of its values,
//! which need the complete graph.

use super::compile::FRAME_BYTES_MAX;
use super::fabric::Fabric;
use super::nest::{Nested, Shapes, within};
use crate::error::{Error, Kind, Result};
use crate::graph::{Graph, Kept, Maker, NodeId, Sharer, check, explain_cycle};
use crate::name::Name;

impl Graph {
    /// Checks that the graph is not that of a pipeline.
    pub(crate) fn check_unpiped(&self) -> Result<()> {
        if let (Some(between), None) = (self.between.first(), self.fault()) {
            let what = format!("{} '{}'", between.is.kind(), between.name);
            return Err(Kind::OnlyInPipeline { what }.into());
        }
        if let (Some(edge), None) = (self.item_edges.first(), self.fault()) {
            let what = format!("the wait of '{}' for an earlier item", self.full_name(edge.target));
            return Err(Kind::OnlyInPipeline { what }.into());
        }
        Ok(())
    }

    /// Makes the checks of [`Graph::compile`], without a plan. Returns the shapes of the graph and its inner
    /// graphs, as they are compiled.
    ///
    /// # Errors
    /// Those of [`Graph::compile`], except those of policies.
    pub(crate) fn checked_shapes(&self) -> Result<Shapes> {
        let nested = self.nested();
        let shapes = self.checked(&nested)?;
        Fabric::new(self, &nested)?;
        Ok(shapes)
    }

    /// Checks the graph and its inner graphs. Returns their shapes.
    pub(super) fn checked(&self, nested: &[Nested<&Graph>]) -> Result<Shapes> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if self.is_inner() {
            return Err(Kind::IsInner.into());
        }
        if self.layout.size() > FRAME_BYTES_MAX {
            let what = "the size in bytes of one run's values".into();
            return Err(Kind::Limit { what, got: self.layout.size(), limit: FRAME_BYTES_MAX }.into());
        }
        let shape = self.compiled_shape();
        let shapes: Vec<_> = nested.iter().map(|inner| inner.map(|graph| graph.compiled_shape())).collect();
        let fault = |at: Option<usize>, fault: Error| match at {
            None => fault,
            Some(at) => within(&shape, &shapes, at, fault),
        };
        let graphs =
            std::iter::once((self, &shape)).chain(nested.iter().zip(&shapes).map(|(each, shape)| (each.graph, &shape.graph)));
        for (at, (graph, shape)) in graphs.enumerate() {
            let checked = check(shape).map_err(|error| graph.explain_cycle(error)).and_then(|()| graph.check_read());
            checked.map_err(|error| fault(at.checked_sub(1), error))?;
            graph.check_taken()?;
        }
        Ok((shape, shapes))
    }

    /// Returns the first node that communicates between ranks, in this graph or an inner one.
    pub(super) fn communicates(&self) -> Option<Name> {
        // Only a graph with communication has a context.
        self.context?;
        let nested = self.nested();
        std::iter::once(self).chain(nested.iter().map(|each| each.graph)).find_map(|graph| {
            let node = graph.shape().ids().find(|node| graph.shape().nodes()[node.index()].communication.is_some());
            node.map(|node| graph.full_name(node))
        })
    }

    /// Checks that every value has a reader, which needs the complete graph.
    fn check_read(&self) -> Result<()> {
        for (value, number) in self.values.iter().zip(0..).filter(|(value, _)| !value.is_read) {
            // The graph around adds its path to the error of an inner graph.
            match value.maker {
                Maker::Node(node) if !self.is_last_unread(number, node) => {}
                Maker::Node(node) => return Err(Kind::UnusedNode { node: self.shape().name_of(node).clone() }.into()),
                Maker::Input(input) => {
                    let (kind, name) = (self.input_kind(input), self.inputs[input as usize].name.clone());
                    return Err(Kind::UnusedInput { kind, name }.into());
                }
            }
        }
        Ok(())
    }

    /// Checks that no node takes a shared value.
    fn check_taken(&self) -> Result<()> {
        for (value, number) in self.values.iter().zip(0..) {
            if let (Some(taker), Some(kept)) = (value.taker, value.kept) {
                let (value, taker, why) = (self.maker_name(value.maker), self.full_name(taker), kept.why().into());
                return Err(Kind::TakenState { value, taker, why }.into());
            }
            if let (Some(Kept::Result), Some(sharer)) = (value.kept, value.sharer) {
                let (value, sharer) = (self.maker_name(value.maker), self.sharer_name(sharer));
                let why = format!("{sharer} shares it as an Arc");
                return Err(Kind::SharedResult { value, why }.into());
            }
            if let Some(taker) = value.taker
                && let Some(sharer) = self.sharer_before(taker, number)
            {
                let (value, taker) = (self.maker_name(value.maker), self.full_name(taker));
                return Err(Kind::TakenShared { value, taker, sharer: self.sharer_name(sharer) }.into());
            }
        }
        Ok(())
    }

    /// Returns why a node may not take a value that is an `Arc`. An exchange may, if async nodes read it
    /// before: it uses the memory only of a value that nothing else keeps. Outputs, loops and branches need
    /// the value itself.
    fn sharer_before(&self, taker: NodeId, number: u32) -> Option<Sharer> {
        let value = &self.values[number as usize];
        value.sharer.filter(|_| self.shape().nodes()[taker.index()].communication.is_none()).or_else(|| {
            let keeper = self.kept.iter().find(|(_, kept)| *kept == number).map(|(keeper, _)| Sharer::Control(*keeper));
            value.output.map(Sharer::Output).or(keeper)
        })
    }

    /// Explains a cycle that exists only because one node takes a value that another reads.
    fn explain_cycle(&self, error: Error) -> Error {
        let value = |value: u32| match self.values[value as usize].maker {
            Maker::Node(node) => format!("'{}'", self.shape().name_of(node)),
            maker => self.maker_name(maker),
        };
        let takes = self.take_orders().into_iter().map(|(reader, taker, taken)| (reader, taker, value(taken)));
        explain_cycle(error, self.shape(), takes)
    }

    /// Returns whether a value is the last one of its loop or branch, and none of the values of that node is
    /// read. If one of them is read, the others may be unread.
    fn is_last_unread(&self, value: u32, node: NodeId) -> bool {
        let work = self.works[node.index()];
        let values = &self.values[work.value as usize..(work.value + work.values) as usize];
        value + 1 == work.value + work.values && values.iter().all(|value| !value.is_read)
    }
}
