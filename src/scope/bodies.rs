//! Closures as bodies of operations: tasks, values that are made once, reductions, and transfers.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::batch::{Batch, Step};
use super::body::{Fold, FoldState, MakeParts, Task, Transfer, Transferring};
use super::place::Scoped;
use super::scalar::Operator;
use super::tile::TilePlace;
use crate::device::Element;
use crate::error::BoxError;
use crate::graph::{Data, Made, TaskFn};
use crate::sync::{Mutex, lock};
use crate::value::args::Finish;

/// A closure on tiles.
pub(super) struct Tasked<P, F, R, K> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) kind: PhantomData<fn(R) -> K>,
}

impl<P: Send + Sync, F: TaskFn<Scoped, P, R>, R, K: Finish<R, Value = ()>> Task for Tasked<P, F, R, K> {
    fn run(&self, batch: Batch<'_>) -> Result<(), BoxError> {
        let Ok(returned) = self.work.call(&self.params, batch);
        K::finish(returned)
    }
}

/// A closure whose value is made once.
pub(super) struct Once<P, F, R, K> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) scalar: u32,
    pub(super) kind: PhantomData<fn(R) -> K>,
}

impl<P: Send + Sync, F: TaskFn<Scoped, P, R>, R, K: Finish<R, Value: Data>> Task for Once<P, F, R, K> {
    fn run(&self, batch: Batch<'_>) -> Result<(), BoxError> {
        let Ok(returned) = self.work.call(&self.params, batch);
        batch.set_scalar(self.scalar, Box::new(K::finish(returned)?));
        Ok(())
    }
}

/// A reduction of values of one type.
pub(super) struct Reduced<O, A> {
    pub(super) operator: O,
    pub(super) scalar: u32,
    pub(super) value: PhantomData<fn() -> A>,
}

/// The state of a reduction: the parts of the batches in flight, and all parts before, combined.
pub(super) struct FoldParts<A> {
    /// Of each batch in flight.
    of: Box<[Mutex<Vec<A>>]>,
    combined: Mutex<Option<A>>,
}

impl<A: Data> FoldParts<A> {
    fn of(state: &FoldState) -> &Self {
        state.downcast_ref().expect("the state was made by this fold")
    }

    /// Takes over the parts of a batch that lie elsewhere.
    pub(super) fn put(state: &FoldState, slot: usize, parts: &[A])
    where
        A: Copy,
    {
        lock(&Self::of(state).of[slot]).extend_from_slice(parts);
    }
}

impl<O: Operator<A>, A: Data> Fold for Reduced<O, A> {
    fn state(&self, slots: usize) -> Box<FoldState> {
        let of = (0..slots).map(|_| Mutex::new(Vec::new())).collect();
        Box::new(FoldParts::<A> { of, combined: Mutex::new(None) })
    }

    fn combine(&self, slot: usize, state: &FoldState) {
        let state = FoldParts::<A>::of(state);
        let mut combined = lock(&state.combined);
        for part in lock(&state.of[slot]).drain(..) {
            let before = combined.take().unwrap_or_else(|| self.operator.identity());
            *combined = Some(self.operator.combine(before, part));
        }
    }

    fn result(&self, state: &FoldState) -> Made {
        let combined = lock(&FoldParts::<A>::of(state).combined).take();
        Box::new(combined.unwrap_or_else(|| self.operator.identity()))
    }

    fn part_bytes(&self) -> u64 {
        size_of::<A>() as u64
    }

    fn scalar(&self) -> u32 {
        self.scalar
    }
}

/// A closure that makes a part of each leaf.
pub(super) struct PartsByClosure<P, F, A> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) value: PhantomData<fn() -> A>,
}

impl<P: Send + Sync, F: TaskFn<Scoped, P, A>, A: Data> MakeParts for PartsByClosure<P, F, A> {
    fn make(&self, batch: Batch<'_>, state: &FoldState) {
        let mut parts = lock(&FoldParts::<A>::of(state).of[batch.slot]);
        batch.each_leaf(|leaf| {
            let Ok(part) = self.work.call(&self.params, leaf);
            parts.push(part);
        });
    }
}

/// A closure that fills a buffer with a tile from outside.
pub(super) struct Loaded<T, const N: usize, F> {
    pub(super) at: u32,
    pub(super) work: F,
    pub(super) element: PhantomData<fn() -> T>,
}

/// A closure that brings a tile outside.
pub(super) struct Saved<T, const N: usize, F> {
    pub(super) at: u32,
    pub(super) work: F,
    pub(super) element: PhantomData<fn() -> T>,
}

/// What a transfer gives back for the next one.
type Buffer<T> = Result<Vec<T>, BoxError>;

impl<T: Element, const N: usize, F, Fut> Transfer for Loaded<T, N, F>
where
    F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Buffer<T>> + Send + 'static,
{
    fn start(&self, step: Arc<Step>, op: usize) -> Transferring {
        let Some(batch) = step.batch(op, step.number) else { return Box::pin(std::future::ready(Ok(()))) };
        let (at, place) = (self.at, batch.place::<N>(self.at));
        let buffer = batch.buffer::<T>(place.len());
        let load = (self.work)(place, buffer);
        Box::pin(async move {
            let failing = step.run().failing(step.number, op, place.batch);
            let loaded = load.await?;
            let batch = step.batch(op, step.number).expect("it was there before");
            if loaded.len() != place.len() {
                let fault = format!("it gave {} elements for a tile of {}", loaded.len(), place.len());
                return Err(fault.into());
            }
            batch.target_of::<T, N>(at, |mut tile| tile.as_mut_slice().copy_from_slice(&loaded));
            batch.keep_buffer(loaded);
            failing.pass();
            Ok(())
        })
    }
}

impl<T: Element, const N: usize, F, Fut> Transfer for Saved<T, N, F>
where
    F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Buffer<T>> + Send + 'static,
{
    fn start(&self, step: Arc<Step>, op: usize) -> Transferring {
        let Some(batch) = step.batch(op, step.number) else { return Box::pin(std::future::ready(Ok(()))) };
        let place = batch.place::<N>(self.at);
        let mut buffer = batch.buffer::<T>(place.len());
        batch.tile_of::<T, N>(self.at, |tile| buffer.copy_from_slice(tile.as_slice()));
        let save = (self.work)(place, buffer);
        Box::pin(async move {
            let failing = step.run().failing(step.number, op, place.batch);
            let buffer = save.await?;
            step.batch(op, step.number).expect("it was there before").keep_buffer(buffer);
            failing.pass();
            Ok(())
        })
    }
}
