//! How tasks, async nodes and kernels are added to a graph: each binds what it reads and gets a cell for its
//! value.

use std::future::Future;
use std::marker::PhantomData;

use super::builder::{Graph, NodeWork};
use super::closures::{Async, Closure, Kernel, Task, Work};
use super::handle::Value;
use super::source::Binder;
use super::values::Maker;
use super::{Backend, NodeId};
use crate::device::KernelStream;
use crate::error::BoxError;
use crate::name::Name;
use crate::value::args::{Finish, FutureFn, KernelFn, Reads, TaskFn};

impl Graph {
    pub(super) fn add_task<I, Q, F, K>(&mut self, name: Name, reads: I, work: F) -> Value<K::Value>
    where
        I: Reads<Graph>,
        Q: 'static,
        F: TaskFn<Graph, I::Params, Q>,
        K: Finish<Q>,
        K::Value: Send + Sync + 'static,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let params = reads.bind(&mut Binder { graph: self, reader: node, is_async: false });
        self.finish(node, Task::<_, _, Q, K> { params, work, kind: PhantomData }, false)
    }

    pub(super) fn add_future<I, R, F, Fut>(&mut self, name: Name, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        R: Send + Sync + 'static,
        F: FutureFn<Graph, I::Params, Fut>,
        Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let params = reads.bind(&mut Binder { graph: self, reader: node, is_async: true });
        let future = self.layout.slot::<Fut>();
        self.finish(node, Async { params, work, future }, true)
    }

    pub(super) fn add_kernel<I, S, Q, F, K>(&mut self, name: Name, reads: I, work: F) -> Value<K::Value>
    where
        I: Reads<Graph>,
        S: KernelStream,
        Q: 'static,
        F: KernelFn<Graph, S, I::Params, Q>,
        K: Finish<Q>,
        K::Value: Send + Sync + 'static,
    {
        let node = self.shape_mut().node(name, Backend::Gpu);
        let params = reads.bind(&mut Binder { graph: self, reader: node, is_async: false });
        self.finish(node, Kernel::<S, _, _, Q, K> { params, work, kind: PhantomData }, false)
    }

    fn finish<W: Work<Value: Send + Sync> + 'static>(&mut self, node: NodeId, work: W, is_async: bool) -> Value<W::Value> {
        let out = self.layout.slot::<W::Value>();
        let value = self.value(out, Maker::Node(node));
        self.bodies.push(Closure { work, out }, |body| body);
        self.works.push(NodeWork { value: value.index, values: 1, is_async, is_control: false });
        value
    }
}
