//! Ranks as processes of MPI: each operation is one or two of MPI's own non-blocking operations, unless its
//! comparison carries it (`steps`).
//!
//! Where the sizes may differ from rank to rank, a first operation exchanges them: all-gathers of lists, and
//! broadcasts. A receive learns the size from the message (`MPI_Improbe`).

use std::ffi::c_int;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{Called, Calls, Failed, Handle, ListsAt, Memory, count};
use super::checks::Channel;
use super::comm::{Comm, count_message};
use super::pair::{VALUES, exchange};
use super::path::{Buffers, LandingOf, Probe, Start, Step};
use super::progress::{Progress, Request};
use crate::comm::combine;
use crate::comm::control::{Control, Waits};
use crate::comm::detached::detach;
use crate::comm::engine::{Checks, Engine, Issuing};
use crate::comm::given::Given;
use crate::comm::health::Health;
use crate::comm::op::{Op, OpFault, OpFuture, Peering, Place, Spec};
use crate::comm::spares::Spares;
use crate::error::{BoxError, WorldFault};
use crate::graph::{Exchange, Made, Shared};
use crate::name::Name;

pub(super) struct Mpi<H: Handle>(Arc<Inner<H>>);

struct Inner<H: Handle> {
    progress: Arc<Progress<H>>,
    comm: Arc<Comm<H>>,
    waits: Arc<Waits>,
    /// None if there is one rank.
    checks: Option<Arc<Channel<H>>>,
    spares: Arc<Spares>,
    place: Place,
    /// The largest tag of a message.
    tag_max: u32,
    deadline: Duration,
}

impl<H: Handle> Mpi<H> {
    pub(super) fn new(
        progress: Arc<Progress<H>>,
        comm: Arc<Comm<H>>,
        waits: Arc<Waits>,
        (place, tag_max): (Place, u32),
        deadline: Duration,
    ) -> Self {
        let channel = || Arc::new(Channel { progress: progress.clone(), comm: comm.clone(), waits: waits.clone(), place });
        let checks = (place.size > 1).then(channel);
        Self(Arc::new(Inner { progress, comm, waits, checks, spares: Arc::default(), place, tag_max, deadline }))
    }
}

impl<H: Handle> Engine for Mpi<H> {
    fn name(&self) -> &'static str {
        "MPI"
    }

    fn place(&self) -> Place {
        self.0.place
    }

    fn health(&self) -> &Arc<Health> {
        &self.0.comm.health
    }

    fn start(&self, op: Op, issuing: Arc<Issuing>) -> OpFuture {
        let (inner, name) = (self.0.clone(), op.name.clone());
        Box::pin(async move { inner.perform(op, &issuing).await.map_err(|fault| fault.at(&name, inner.place.rank)) })
    }

    fn checks(&self) -> Option<Arc<dyn Checks>> {
        Some(self.0.checks.clone()?)
    }

    fn duplicate(&self) -> crate::Result<Box<dyn Engine>> {
        super::open::engine(self.0.deadline)
    }

    fn cause(&self, fault: &WorldFault) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        cause(&self.0.comm.control, fault)
    }

    fn break_by(&self, fault: WorldFault) {
        self.0.comm.control.break_by(self.0.comm.world, fault);
    }

    fn leave(&self) {
        self.0.comm.control.leave(self.0.comm.world);
    }
}

/// Waits for what the control connection tells of a rank that has died: MPI may find it first.
fn cause(control: &Control, fault: &WorldFault) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match fault {
        WorldFault::Transport { .. } => Box::pin(control.heard()),
        _ => Box::pin(std::future::ready(())),
    }
}

impl OpFault {
    /// Returns the fault with the operation that met it, if it names none.
    fn at(self, name: &Name, rank: u32) -> Self {
        match self {
            Self::World(WorldFault::Transport { what }) => {
                let what = format!("'{name}' on rank {rank}: {what}");
                Self::World(WorldFault::Transport { what })
            }
            other => other,
        }
    }
}

impl From<Failed> for OpFault {
    fn from(failed: Failed) -> Self {
        Self::World(WorldFault::Transport { what: failed.to_string() })
    }
}

type Ended = Result<Made, OpFault>;

impl<H: Handle> Inner<H> {
    async fn perform(&self, op: Op, issuing: &Issuing) -> Ended {
        self.progress.path.check_open()?;
        let spec = op.spec.clone();
        match &spec.communication.exchange {
            Exchange::Barrier => self.barrier(op, issuing).await,
            Exchange::SendTo { .. } => self.send(op, issuing).await,
            Exchange::RecvFrom { .. } => self.receive(op, issuing).await,
            Exchange::Broadcast { root } => self.broadcast(op, *root, issuing).await,
            Exchange::AllGather if spec.made.is_some() => self.all_gather(op, issuing).await,
            // A message of MPI has less than 2 GiB; a reduction, so many elements.
            _ if spec.fold.is_some() && self.place.size == 2 && op.given.bytes().len() <= c_int::MAX as usize => {
                self.fold(op, issuing).await
            }
            Exchange::AllReduce { .. } | Exchange::ReduceScatter { .. } if spec.reduction.is_some() => {
                self.reduce(op, issuing).await
            }
            Exchange::AllToAll => self.all_to_all(op, issuing).await,
            // NCCL does the last one: it is of device memory.
            Exchange::AllGather | Exchange::AllReduce { .. } | Exchange::ReduceScatter { .. } | Exchange::SendRecv { .. } => {
                let all = self.gather_values(&op, issuing).await?;
                Ok((spec.combine)(self.place, &all)?)
            }
        }
    }

    /// Hands a request to the path. Its calls are made in the order in which this is called.
    fn request(&self, buffers: Buffers, start: impl FnOnce(&Calls<H>, H) -> Called<H> + Send + 'static) -> Request<H> {
        let comm = self.comm.handle();
        let start: Start<H> = Box::new(move |calls, _| Ok(Step::Request(start(calls, comm)?)));
        self.progress.request(start, buffers.on(self.comm.clone()))
    }

    /// Among several ranks, a barrier is its comparison. This one is for one rank.
    async fn barrier(&self, op: Op, issuing: &Issuing) -> Ended {
        // SAFETY: a barrier has no memory.
        let request = self.request(Buffers::none(), |calls, comm| unsafe { calls.barrier(comm) });
        issuing.complete();
        request.await?;
        Ok((op.spec.finish)(None))
    }

    async fn send(&self, op: Op, issuing: &Issuing) -> Ended {
        let Some(Peering { rank, tag }) = op.peer else { return Ok((op.spec.finish)(None)) };
        let (given, form, tag) = (op.given, op.spec.form, self.tag(tag)?);
        let from = Memory::to_read(given.bytes());
        count_message(&self.comm.sent);
        // SAFETY: the buffers keep the memory.
        let mut request = self.request(Buffers::of((), from.bytes).giving(given, &self.spares), move |calls, comm| unsafe {
            calls.send(from, rank, tag, comm)
        });
        issuing.complete();
        match request.sent(from.bytes).await {
            Some(end) => self.spares.keep(end?.given, &form),
            // MPI ends a send of a large value when it is received. Two ranks that each await a send before
            // they receive would wait for ever. So a send ends when it is issued, and has had some time to
            // complete; the buffers keep the value.
            None => {
                let (control, world, spares) = (self.comm.control.clone(), self.comm.world, self.spares.clone());
                detach(async move {
                    match request.await {
                        Ok(ended) => spares.keep(ended.given, &form),
                        Err(failed) => {
                            let fault = WorldFault::Transport { what: failed.to_string() };
                            cause(&control, &fault).await;
                            control.break_by(world, fault);
                        }
                    }
                });
            }
        }
        Ok((op.spec.finish)(None))
    }

    async fn receive(&self, op: Op, issuing: &Issuing) -> Ended {
        let Some(Peering { rank: from, tag }) = op.peer else { return Ok((op.spec.finish)(None)) };
        let (tag, comm, form, spares) = (self.tag(tag)?, self.comm.handle(), op.spec.form, self.spares.clone());
        let landing: LandingOf = Box::new(move |bytes| spares.landing(&form, bytes));
        let (wait, is_matched) = self.waits.message(from);
        count_message(&self.comm.received);
        let probe = Probe { from, tag, comm, landing, is_matched: Some(is_matched), beside: None };
        let start: Start<H> = Box::new(move |_, _| Ok(Step::Probe(probe)));
        let request = self.progress.request(start, Buffers::none().on(self.comm.clone()));
        issuing.complete();
        let received = request.await?;
        drop(wait);
        Ok((op.spec.finish)(Some(received.value()?)))
    }

    async fn reduce(&self, op: Op, issuing: &Issuing) -> Ended {
        let reduction = op.spec.reduction.expect("the caller looked");
        let is_scatter = matches!(op.spec.communication.exchange, Exchange::ReduceScatter { .. });
        let Op { spec, given, .. } = op;
        let from = Memory::to_read(given.bytes());
        let element = reduction.0.bytes();
        let bytes = if is_scatter { self.part(from.bytes, element, issuing)? } else { from.bytes };
        let (buffers, into) = self.landing(&spec, bytes, ());
        let request = self.request(buffers.giving(given, &self.spares), move |calls, comm| {
            if is_scatter {
                // SAFETY: the buffers keep the memory.
                unsafe { calls.reduce_scatter(from, into, reduction, comm) }
            } else {
                // SAFETY: the buffers keep the memory.
                unsafe { calls.all_reduce(from, into, reduction, comm) }
            }
        });
        issuing.complete();
        self.landed(&spec, request, issuing).await
    }

    /// Reduces the values of two ranks: each sends what the other one gets combined, and combines.
    async fn fold(&self, op: Op, issuing: &Issuing) -> Ended {
        let Op { spec, given, .. } = op;
        let (whole, peer) = (given.bytes().len(), 1 - self.place.rank as usize);
        let of_peer = match spec.communication.exchange {
            Exchange::ReduceScatter { .. } => {
                let part = self.part(whole, spec.element, issuing)?;
                part * peer..part * (peer + 1)
            }
            _ => 0..whole,
        };
        let from = Memory::to_read(&given.bytes()[of_peer]);
        let buffers = Buffers::of((), from.bytes).giving(given, &self.spares);
        let (form, spares) = (spec.form, self.spares.clone());
        let landing: LandingOf = Box::new(move |bytes| spares.landing(&form, bytes));
        // SAFETY: the buffers keep the memory.
        let exchanged = unsafe { exchange(&self.progress, &self.comm, (peer as u32, VALUES), (from, buffers), landing) };
        issuing.complete();
        let mut exchanged = exchanged.await?;
        issuing.agreed().await;
        let own = exchanged.given.take().expect("it was given");
        let fold = spec.fold.as_ref().expect("the caller looked");
        let made = fold(self.place, &own, exchanged.value()?)?;
        self.spares.keep(Some(own), &spec.form);
        Ok((spec.finish)(Some(made)))
    }

    async fn all_to_all(&self, op: Op, issuing: &Issuing) -> Ended {
        let Op { spec, given, .. } = op;
        let from = Memory::to_read(given.bytes());
        let part = self.part(from.bytes, spec.element, issuing)?;
        let (buffers, into) = self.landing(&spec, from.bytes, ());
        // SAFETY: the buffers keep the memory.
        let request = self
            .request(buffers.giving(given, &self.spares), move |calls, comm| unsafe { calls.all_to_all(from, into, part, comm) });
        issuing.complete();
        self.landed(&spec, request, issuing).await
    }

    async fn broadcast(&self, op: Op, root: u32, issuing: &Issuing) -> Ended {
        let is_root = self.place.rank == root;
        let Op { spec, given, .. } = op;
        let bytes = match spec.form.bytes {
            Some(bytes) => bytes,
            None => self.broadcast_size(if is_root { given.bytes().len() } else { 0 }, root).await?,
        };
        let (buffers, at) = if is_root {
            let at = Memory::to_read(given.bytes());
            (Buffers::of((), at.bytes).giving(given, &self.spares), at)
        } else {
            self.spares.keep(Some(given), &spec.form);
            self.landing(&spec, bytes, ())
        };
        // SAFETY: the buffers keep the memory, which the root only reads.
        let request = self.request(buffers, move |calls, comm| unsafe { calls.broadcast(at, root, comm) });
        issuing.complete();
        let ended = request.await?;
        issuing.agreed().await;
        let value = match ended.given {
            Some(given) => given.into_made(&spec.form)?,
            None => ended.value()?,
        };
        Ok((spec.finish)(Some(value)))
    }

    async fn broadcast_size(&self, bytes: usize, root: u32) -> Result<usize, OpFault> {
        let mut size = vec![bytes as u64];
        let at = Memory::of(bytemuck::cast_slice_mut(&mut size));
        // SAFETY: the buffers keep the number.
        let start = move |calls: &Calls<H>, comm| unsafe { calls.broadcast(at, root, comm) };
        let size = self.request(Buffers::of(size, 0), start).await?.others::<Vec<u64>>();
        Ok(size[0] as usize)
    }

    async fn all_gather(&self, op: Op, issuing: &Issuing) -> Ended {
        let Op { spec, given, .. } = op;
        let from = Memory::to_read(given.bytes());
        if spec.form.bytes.is_some() {
            let (buffers, into) = self.landing(&spec, from.bytes * self.place.size as usize, ());
            // SAFETY: the buffers keep the memory.
            let request = self
                .request(buffers.giving(given, &self.spares), move |calls, comm| unsafe { calls.all_gather(from, into, comm) });
            issuing.complete();
            return self.landed(&spec, request, issuing).await;
        }
        let counts = self.gather_counts(from.bytes).await?;
        let lists = Lists::new(counts)?;
        let at = lists.memory();
        let (buffers, into) = self.landing(&spec, lists.total, lists);
        // SAFETY: the buffers keep the memory and the lists.
        let request = self.request(buffers.giving(given, &self.spares), move |calls, comm| unsafe {
            calls.all_gather_parts(from, into, at, comm)
        });
        issuing.complete();
        self.landed(&spec, request, issuing).await
    }

    /// Returns the values of all ranks.
    async fn gather_values(&self, op: &Op, issuing: &Issuing) -> Result<Vec<Given>, OpFault> {
        let given = op.given.clone();
        let from = Memory::to_read(given.bytes());
        let lists = Lists::new(self.gather_counts(from.bytes).await?)?;
        let (mut gathered, at) = (vec![0; lists.total], lists.memory());
        let into = Memory::of(&mut gathered);
        let buffers = Buffers::of((given, lists, gathered), into.bytes);
        // SAFETY: the buffers keep the memory and the lists.
        let request = self.request(buffers, move |calls, comm| unsafe { calls.all_gather_parts(from, into, at, comm) });
        issuing.complete();
        let (_, lists, gathered) = request.await?.others::<(Given, Lists, Vec<u8>)>();
        let mut rest = &gathered[..];
        let mut values = Vec::with_capacity(lists.counts.len());
        for &count in &lists.counts {
            let (value, behind) = rest.split_at(count as usize);
            values.push(Given::new(Shared::from((op.spec.form.decode)(value)?)));
            rest = behind;
        }
        Ok(values)
    }

    /// Returns the number of bytes that each rank gives.
    async fn gather_counts(&self, bytes: usize) -> Result<Vec<c_int>, OpFault> {
        let (own, mut counts) = (vec![count(bytes)?], vec![0; self.place.size as usize]);
        let (from, into) = (Memory::to_read(bytemuck::cast_slice(&own)), Memory::of(bytemuck::cast_slice_mut(&mut counts)));
        // SAFETY: the buffers keep both.
        let start = move |calls: &Calls<H>, comm| unsafe { calls.all_gather(from, into, comm) };
        let (_, counts) = self.request(Buffers::of((own, counts), 0), start).await?.others::<(Vec<c_int>, Vec<c_int>)>();
        Ok(counts)
    }

    /// Returns the number of bytes of a part, of as many as there are ranks. If there is none, all ranks find
    /// that: a comparison has found the same length on all of them, or is going to break the world.
    fn part(&self, bytes: usize, element: usize, issuing: &Issuing) -> Result<usize, BoxError> {
        let part = combine::part(bytes / element, self.place.size).inspect_err(|_| issuing.complete())?;
        Ok(part * element)
    }

    /// Returns memory for a result of so many bytes, beside the memory that is only read.
    fn landing(&self, spec: &Spec, bytes: usize, others: impl Send + 'static) -> (Buffers, Memory) {
        let form = spec.made.expect("the transport makes the value");
        let mut landing = self.spares.landing(&form, bytes);
        let into = Memory::to_receive(&mut *landing);
        (Buffers::landing(landing, others), into)
    }

    async fn landed(&self, spec: &Spec, request: Request<H>, issuing: &Issuing) -> Ended {
        let mut ended = request.await?;
        issuing.agreed().await;
        self.spares.keep(ended.given.take(), &spec.form);
        Ok((spec.finish)(Some(ended.value()?)))
    }

    /// Returns the tag of MPI for a message. That of flows is the last number, and 0 for MPI.
    fn tag(&self, tag: u32) -> Result<c_int, BoxError> {
        let (tag, most) = (tag.wrapping_add(1), self.tag_max);
        if tag <= most {
            return Ok(tag as c_int);
        }
        let text = format!("it is message {tag} of its graph, and this MPI library has tags up to {most}: divide the graph");
        Err(text.into())
    }
}

/// The number of bytes of each rank in a gather, and where they begin.
pub(super) struct Lists {
    pub(super) counts: Vec<c_int>,
    starts: Vec<c_int>,
    pub(super) total: usize,
}

impl Lists {
    pub(super) fn new(counts: Vec<c_int>) -> Called<Self> {
        let (mut starts, mut total) = (Vec::with_capacity(counts.len()), 0);
        for &bytes in &counts {
            starts.push(count(total)?);
            total += bytes as usize;
        }
        Ok(Self { counts, starts, total })
    }

    pub(super) fn memory(&self) -> ListsAt {
        ListsAt(self.counts.as_ptr(), self.starts.as_ptr())
    }
}
