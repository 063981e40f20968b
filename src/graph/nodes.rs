//! The methods that add tasks, async nodes and kernels to a graph: each binds the node's reads and places a
//! cell for its value.

use super::builder::{Graph, NodeWork};
use super::closures::{Closure, Work};
use super::handle::Value;
use super::source::Binder;
use super::values::Maker;
use crate::name::Name;
use crate::value::args::Reads;

impl Graph {
    /// Adds a node. `make` gets the arguments, bound to `reads`, and returns the node's closure.
    pub(super) fn add<I, W>(&mut self, name: Name, reads: I, make: impl FnOnce(&mut Self, I::Params) -> W) -> Value<W::Value>
    where
        I: Reads<Graph>,
        W: Work<Value: Send + Sync> + 'static,
    {
        let node = self.shape_mut().node(name, W::BACKEND);
        let params = reads.bind(&mut Binder { graph: self, reader: node, is_async: W::IS_ASYNC });
        let work = make(self, params);
        let out = self.layout.slot::<W::Value>();
        let value = self.value(out, Maker::Node(node));
        self.bodies.push(Closure { work, out }, |body| body);
        self.works.push(NodeWork { value: value.index, values: 1, is_async: W::IS_ASYNC, is_control: false });
        value
    }
}
