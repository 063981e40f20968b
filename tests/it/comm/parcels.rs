//! Values that cross by `serde`. Used by the tests over MPI too.

use std::collections::BTreeMap;

use anabranch::comm::{Serde, World};
use anabranch::graph::Peer;
use anabranch::{Executor, Flow, Graph, Inputs, Result, inputs};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value of many forms.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Parcel {
    name: String,
    state: State,
    rows: Vec<Vec<f32>>,
    note: Option<Box<Parcel>>,
    weights: BTreeMap<String, (u64, i8)>,
    letter: char,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum State {
    Open,
    Sealed(u128),
    Sent { to: Vec<Option<String>>, at: std::time::Duration },
}

impl Parcel {
    /// Returns a value that is large, if the number is.
    pub(crate) fn new(number: u32) -> Self {
        let n = number as usize;
        let state = match number % 3 {
            0 => State::Open,
            1 => State::Sealed(u128::MAX - u128::from(number)),
            _ => State::Sent { to: vec![None, Some("é".repeat(n))], at: std::time::Duration::new(u64::from(number), 1) },
        };
        Self {
            name: format!("parcel {number}"),
            state,
            rows: (0..n).map(|row| vec![row as f32 + 0.5; row % 7]).collect(),
            note: number.checked_sub(2).map(|other| Box::new(Self::new(other.min(8)))),
            weights: (0..number % 5).map(|w| (w.to_string(), (u64::from(w), -1))).collect(),
            letter: 'ß',
        }
    }
}

/// Lets nodes of several ranks, without a wrapper, and nodes that communicate exchange parcels.
pub(crate) async fn exchange_in_a_graph(world: &World, number: u32) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let mut g = Graph::new();
    g.wire_serde::<Parcel>();
    let number_of = g.input::<u32>("number");
    let first = g.task("first", &number_of, |n: &u32| Parcel::new(*n));
    let second = g.task("second", &first, |first: &Parcel| vec![first.clone(), Parcel::new(1)].pop());
    let all = g.task("all", (&first, &second), |first: &Parcel, second: &Option<Parcel>| (first.clone(), second.clone()));
    g.wire_serde::<Option<Parcel>>();
    g.node(&first).rank(0);
    g.node(&second).rank(size - 1);
    let mine = g.task("mine", &number_of, move |n: &u32| Serde(Parcel::new(n + rank)));
    let of_last = g.broadcast("of the last", &mine, size - 1);
    let _ = g.send_to("send", &mine, Peer::ring(1));
    let of_left = g.recv_from::<Serde<Parcel>>("receive", Peer::ring(-1));
    g.output("all", &all);
    g.output("of the last", &of_last);
    g.output("of left", &of_left);
    let mut outputs = Executor::inline().run(&g.compile_for(world)?, inputs! { "number" => number }).await?;
    assert_eq!(*outputs.take::<(Parcel, Option<Parcel>)>("all")?, (Parcel::new(number), Some(Parcel::new(1))));
    assert_eq!(outputs.take::<Serde<Parcel>>("of the last")?.0, Parcel::new(number + size - 1));
    let left = (rank + size - 1) % size;
    assert_eq!(*outputs.take::<Option<Serde<Parcel>>>("of left")?, Some(Serde(Parcel::new(number + left))));
    Ok(())
}

/// Lets two ranks exchange parcels in a flow.
pub(crate) async fn exchange_in_a_flow(world: &World) -> Result<()> {
    let (exec, other) = (Executor::inline(), 1 - world.rank());
    let flow = exec.flow(async |f: &Flow| {
        for number in [0, 1, 2, 5, 20_000] {
            let mine = f.value("mine", Serde(Parcel::new(number + world.rank())));
            let sent = f.send_to(world, "send", &mine, other);
            let received = f.recv_from::<Serde<Parcel>>(world, "receive", other);
            let first = f.broadcast(world, "first", &mine, 0);
            f.get(&sent).await?;
            assert_eq!(**f.get(&received).await?, Parcel::new(number + other));
            assert_eq!(**f.get(&first).await?, Parcel::new(number));
        }
        Ok(())
    });
    flow.await
}

/// A value that may have no bytes, or bytes that are those of no value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fragile {
    Whole,
    NotEncoded,
    NotDecoded,
}

impl Serialize for Fragile {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::NotEncoded => Err(S::Error::custom("it is torn")),
            _ => (*self == Self::Whole).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let is_whole = bool::deserialize(deserializer)?;
        if is_whole { Ok(Self::Whole) } else { Err(D::Error::custom("it is torn")) }
    }
}

/// How a value goes from rank 1 to rank 0, under the name `fragile`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Broadcast,
    BroadcastOfFlow,
    Message,
    MessageOfFlow,
    Placed,
}

pub(crate) const WAYS: [Way; 5] = [Way::Broadcast, Way::BroadcastOfFlow, Way::Message, Way::MessageOfFlow, Way::Placed];

impl Way {
    /// Lets rank 1 of two give the value. Returns what this rank then has.
    pub(crate) async fn go(self, world: &World, of_1: Fragile) -> Result<Fragile> {
        let mine = if world.rank() == 1 { of_1 } else { Fragile::Whole };
        match self {
            Self::BroadcastOfFlow | Self::MessageOfFlow => self.flow(world, mine).await,
            _ => self.graph(world, mine).await,
        }
    }

    async fn flow(self, world: &World, mine: Fragile) -> Result<Fragile> {
        let (exec, rank) = (Executor::inline(), world.rank());
        let flow = exec.flow(async |f: &Flow| {
            let x = f.value("x", Serde(mine));
            let got = match self {
                Self::MessageOfFlow if rank == 0 => f.recv_from::<Serde<Fragile>>(world, "fragile", 1),
                Self::MessageOfFlow => {
                    f.get(&f.send_to(world, "fragile", &x, 0)).await?;
                    x
                }
                _ => f.broadcast(world, "fragile", &x, 1),
            };
            Ok(**f.get(&got).await?)
        });
        flow.await
    }

    async fn graph(self, world: &World, mine: Fragile) -> Result<Fragile> {
        let mut g = Graph::new();
        let x = g.task("x", (), move || Serde(mine));
        let got = match self {
            Self::Broadcast => g.broadcast("fragile", &x, 1),
            Self::Message => {
                let _ = g.send_to("fragile", &x, Peer::table([None, Some(0)]));
                let got = g.recv_from::<Serde<Fragile>>("fragile got", Peer::table([Some(1), None]));
                g.task("or own", (&got, &x), |got: &Option<Serde<Fragile>>, x: &Serde<Fragile>| got.unwrap_or(*x))
            }
            _ => {
                g.wire_serde::<Fragile>();
                let fragile = g.task("fragile", &x, |x: &Serde<Fragile>| x.0);
                g.node(&fragile).rank(1);
                g.task("of all", &fragile, |fragile: &Fragile| Serde(*fragile))
            }
        };
        g.output("got", &got);
        let mut outputs = Executor::inline().run(&g.compile_for(world)?, Inputs::new()).await?;
        Ok(outputs.take::<Serde<Fragile>>("got")?.0)
    }
}
