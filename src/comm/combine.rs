//! What each operation makes of the values of the ranks.

use std::any::type_name;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::elements::Elements;
use super::given::Given;
use super::native::native;
use super::op::{Fold, Place, Spec};
use super::wire::{Form, Wire};
use crate::error::BoxError;
use crate::graph::{Communication, Data, Exchange, Made, Peer, Shared};
use crate::scope::Operator;

pub(super) fn all_reduce<V: Elements, O: Operator<V::Item>>(operator: O) -> Spec {
    let exchange = Exchange::AllReduce { operator: operator.name() };
    let reduction = native::<V::Item, O>().filter(|_| are_elements::<V>());
    let operator = Arc::new(operator);
    let of_two = operator.clone();
    let fold: Fold = Box::new(move |place, own, other| folded::<V, O>(&of_two, place, value::<V>(own).elements(), other));
    let spec = spec::<V>(exchange, move |_, all| {
        let length = common_length::<V>(all)?;
        made(V::from_elements(reduced::<V, O>(&operator, all, 0..length))?)
    });
    let spec = with_operator::<V::Item, O>(spec);
    // Other values may be less in bytes than they are here.
    let fold = V::IS_ITS_BYTES.then_some(fold);
    Spec { reduction, made: reduction.map(|_| Form::of::<V>()), fold, ..spec }
}

pub(super) fn all_gather<V: Elements>() -> Spec {
    let spec = spec::<V>(Exchange::AllGather, |_, all| {
        let elements: Vec<&[V::Item]> = all.iter().map(|each| value::<V>(each).elements()).collect();
        made(elements.concat())
    });
    Spec { made: are_elements::<V>().then(Form::of::<Vec<V::Item>>), ..spec }
}

/// Returns whether the bytes of a value are those of its elements, so that a transport can combine and append
/// them. Those of your types may be others.
fn are_elements<V: Elements>() -> bool {
    V::IS_ITS_BYTES || V::BYTES.is_some()
}

pub(super) fn reduce_scatter<T: Pod + Send + Sync, O: Operator<T>>(operator: O) -> Spec {
    let exchange = Exchange::ReduceScatter { operator: operator.name() };
    let (reduction, operator) = (native::<T, O>(), Arc::new(operator));
    let of_two = operator.clone();
    let fold: Fold = Box::new(move |place, own, other| {
        let own = value::<Vec<T>>(own);
        let part = part(own.len(), place.size)?;
        folded::<Vec<T>, O>(&of_two, place, &own[part * place.rank as usize..][..part], other)
    });
    let spec = spec::<Vec<T>>(exchange, move |place, all| {
        let part = part(common_length::<Vec<T>>(all)?, place.size)?;
        let start = part * place.rank as usize;
        made(reduced::<Vec<T>, O>(&operator, all, start..start + part))
    });
    let spec = with_operator::<T, O>(spec);
    Spec { reduction, made: reduction.map(|_| Form::of::<Vec<T>>()), fold: Some(fold), ..spec }
}

pub(super) fn broadcast<V: Wire>(root: u32) -> Spec {
    broadcast_of(Form::of::<V>(), root)
}

pub(super) fn broadcast_of(form: Form, root: u32) -> Spec {
    let spec = spec_of(form, Exchange::Broadcast { root }, move |_, all| (form.decode)(all[root as usize].bytes()));
    Spec { made: Some(form), ..spec }
}

pub(super) fn all_to_all<T: Pod + Send + Sync>() -> Spec {
    let spec = spec::<Vec<T>>(Exchange::AllToAll, |place, all| {
        let part = part(common_length::<Vec<T>>(all)?, place.size)?;
        let parts = all.iter().map(|each| &value::<Vec<T>>(each)[part * place.rank as usize..][..part]);
        made(parts.collect::<Vec<_>>().concat())
    });
    Spec { made: Some(Form::of::<Vec<T>>()), element: size_of::<T>().max(1), ..spec }
}

pub(super) fn barrier() -> Spec {
    let spec = spec::<()>(Exchange::Barrier, |_, _| made(()));
    Spec { finish: |_| Box::new(()), ..spec }
}

pub(super) fn send<V: Wire>(to: Peer) -> Spec {
    send_of(Form::of::<V>(), to)
}

pub(super) fn send_of(form: Form, to: Peer) -> Spec {
    let spec = spec_of(form, Exchange::SendTo { to }, |_, _| made(()));
    Spec { finish: |_| Box::new(()), ..spec }
}

/// A receive of a rank that may have no peer.
pub(super) fn receive<V: Wire>(from: Peer) -> Spec {
    let spec = spec::<V>(Exchange::RecvFrom { from }, |_, all| {
        made(all.first().map(|letter| V::from_wire(letter.bytes())).transpose()?)
    });
    let finish = |received: Option<Made>| -> Made {
        Box::new(received.map(|received| *received.downcast::<V>().expect("it has the form of the type")))
    };
    Spec { made: Some(Form::of::<V>()), finish, ..spec }
}

/// A receive of a rank that has a peer.
pub(super) fn receive_one<V: Wire>(from: Peer) -> Spec {
    receive_of(Form::of::<V>(), from)
}

pub(super) fn receive_of(form: Form, from: Peer) -> Spec {
    let spec = spec_of(form, Exchange::RecvFrom { from }, move |_, all| (form.decode)(all[0].bytes()));
    Spec { made: Some(form), ..spec }
}

pub(super) fn spec<V: Wire>(
    exchange: Exchange,
    combine: impl Fn(Place, &[Given]) -> Result<Made, BoxError> + Send + Sync + 'static,
) -> Spec {
    spec_of(Form::of::<V>(), exchange, combine)
}

fn spec_of(
    form: Form,
    exchange: Exchange,
    combine: impl Fn(Place, &[Given]) -> Result<Made, BoxError> + Send + Sync + 'static,
) -> Spec {
    let communication = Communication { exchange, of: form.of.into(), operator: None };
    let combine = Box::new(combine);
    let finish = |made: Option<Made>| made.expect("the transport makes a value");
    Spec {
        communication,
        form,
        made: None,
        element: 1,
        reduction: None,
        finish,
        combine,
        fold: None,
        #[cfg(feature = "nccl")]
        on_device: None,
    }
}

/// Notes the elements and the operator of a reduction.
fn with_operator<T, O>(mut spec: Spec) -> Spec {
    spec.communication.operator = Some(type_name::<O>().into());
    Spec { element: size_of::<T>().max(1), ..spec }
}

fn made<R: Data>(value: R) -> Result<Made, BoxError> {
    Ok(Box::new(value))
}

pub(super) fn value<V: 'static>(given: &Given) -> &V {
    given.value().downcast_ref().expect("all ranks give values of one type")
}

/// Combines a range of the elements of all ranks, in the order of the ranks. All have equally many.
fn reduced<V: Elements, O: Operator<V::Item>>(operator: &O, all: &[Given], range: Range<usize>) -> Vec<V::Item> {
    let mut rest = all.iter().map(|each| &value::<V>(each).elements()[range.clone()]);
    let mut combined = rest.next().expect("a world has a rank").to_vec();
    for elements in rest {
        for (before, behind) in combined.iter_mut().zip(elements) {
            *before = operator.combine(*before, *behind);
        }
    }
    combined
}

/// Combines the elements of one of two ranks with those of the other one, in the order of the ranks.
fn folded<V: Elements, O: Operator<V::Item>>(operator: &O, place: Place, own: &[V::Item], other: Made) -> Result<Made, BoxError> {
    let other: Box<V> = other.downcast().expect("it has the form of the type");
    let mut elements = other.into_elements();
    let pairs = elements.iter_mut().zip(own);
    match place.rank {
        0 => pairs.for_each(|(other, own)| *other = operator.combine(*own, *other)),
        _ => pairs.for_each(|(other, own)| *other = operator.combine(*other, *own)),
    }
    made(V::from_elements(elements)?)
}

/// Returns the number of elements that each rank gives.
fn common_length<V: Elements>(all: &[Given]) -> Result<usize, BoxError> {
    let length = |rank: usize| value::<V>(&all[rank]).elements().len();
    match (1..all.len()).find(|rank| length(*rank) != length(0)) {
        None => Ok(length(0)),
        Some(rank) => Err(lengths_differ(length(0) as u64, rank as u32, length(rank) as u64)),
    }
}

pub(super) fn lengths_differ(first: u64, rank: u32, other: u64) -> BoxError {
    format!("rank 0 gives {first} elements, and rank {rank} gives {other}: let all ranks give equally many").into()
}

/// Returns the length of a part, of as many as there are ranks.
pub(super) fn part(length: usize, size: u32) -> Result<usize, BoxError> {
    if length.is_multiple_of(size as usize) {
        return Ok(length / size as usize);
    }
    let message = format!("{length} elements cannot be divided among {size} ranks: give a multiple of {size}");
    Err(message.into())
}

/// What a rank gives that has nothing to give.
pub(super) fn nothing() -> Shared {
    Arc::new(())
}
