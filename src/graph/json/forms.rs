//! The parts of the JSON form, and the checks that serde makes while it reads them.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::fault::{fault, quoted};
use super::ranks::{ExchangeForm, RanksForm};
use crate::error::Result;
use crate::graph::check::near_name;
use crate::graph::shape::Link;
use crate::graph::{Backend, COST_US_MAX, Control, DEVICE_MAX, Edge, EdgeKind, Memory, NODES_MAX, NodeId, Shape};

/// The most items that a list in the file may have: edges, inputs, outputs.
const ITEMS_MAX: usize = 1 << 26;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphForm<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(borrow, deserialize_with = "nodes")]
    pub(super) nodes: Vec<NodeForm<'a>>,
    #[serde(default, deserialize_with = "lists", skip_serializing_if = "Vec::is_empty")]
    pub(super) edges: Vec<(String, String)>,
    /// The place of each edge and each read of a state in their common order, if they were not made node by
    /// node.
    #[serde(default, deserialize_with = "lists", skip_serializing_if = "Vec::is_empty")]
    pub(super) edge_order: Vec<u32>,
    #[serde(default, deserialize_with = "some_items", skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<Vec<OutputForm>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeForm<'a> {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<Backend>,
    #[serde(borrow, default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub(super) repeat: Option<RepeatForm<'a>>,
    #[serde(borrow, default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<BranchForm<'a>>,
    #[serde(default, deserialize_with = "items", skip_serializing_if = "Vec::is_empty")]
    pub(super) inputs: Vec<InputForm>,
    #[serde(default, deserialize_with = "lists", skip_serializing_if = "Vec::is_empty")]
    pub(super) after: Vec<String>,
    #[serde(default, deserialize_with = "devices", skip_serializing_if = "Option::is_none")]
    pub(super) devices: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    #[serde(default = "one", deserialize_with = "cost", skip_serializing_if = "is_one")]
    pub(super) cost_us: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ranks: Option<RanksForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<ExchangeForm>,
    /// The type of the values that are exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    /// The type of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) operator: Option<String>,
}

/// Inner graphs stay text until the graph around them is read, so that reading does not recurse.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepeatForm<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) body: &'a RawValue,
    /// The default is one. A loop without a condition needs the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) iterations: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_iterations: Option<u64>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchForm<'a> {
    #[serde(borrow, deserialize_with = "lists")]
    pub(super) arms: Vec<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<u32>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) output: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) metadata: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) take: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputForm {
    pub(super) node: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) output: u32,
}

fn one() -> f64 {
    1.0
}

fn is_one(cost: &f64) -> bool {
    *cost == 1.0
}

fn is_zero(output: &u32) -> bool {
    *output == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let cost = f64::deserialize(from)?;
    let is_right = (0.0..=COST_US_MAX).contains(&cost);
    if is_right { Ok(cost) } else { Err(D::Error::custom(format!("the cost is {cost:?} us; it must be from 0 to 10^12"))) }
}

fn devices<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u32>>, D::Error> {
    let devices: Vec<u32> = bounded(from, DEVICE_MAX as usize + 1)?;
    match devices.iter().find(|&&device| device > DEVICE_MAX) {
        Some(device) => Err(D::Error::custom(format!("device {device} is out of range: the largest is {DEVICE_MAX}"))),
        None => Ok(Some(devices)),
    }
}

fn nodes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeForm<'de>>, D::Error> {
    Ok(bounded::<D, Object<NodeForm<'de>>>(from, NODES_MAX)?.into_iter().map(|Object(form)| form).collect())
}

fn items<'de, D: Deserializer<'de>, T: Deserialize<'de> + Checked>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(bounded::<D, Object<T>>(from, ITEMS_MAX)?.into_iter().map(|Object(form)| form).collect())
}

fn some_items<'de, D: Deserializer<'de>, T: Deserialize<'de> + Checked>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    items(from).map(Some)
}

fn lists<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    bounded(from, ITEMS_MAX)
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de> + Checked>(from: D) -> Result<Option<T>, D::Error> {
    Object::deserialize(from).map(|Object(form)| Some(form))
}

/// A check of a form beyond its fields. Its error has the place in the file.
pub(super) trait Checked {
    fn fault(&self) -> Option<String> {
        None
    }
}

impl Checked for GraphForm<'_> {}
impl Checked for OutputForm {}

impl Checked for NodeForm<'_> {
    fn fault(&self) -> Option<String> {
        match (&self.repeat, &self.branch, &self.backend) {
            (Some(_), Some(_), _) => Some("a node is a `repeat` or a `branch`, not both".into()),
            (None, None, None) => Some("missing field `backend`".into()),
            (None, None, _) if self.inputs.iter().any(|input| input.take) => {
                Some("only a loop or a branch says here what it takes: the body of any other node says it".into())
            }
            _ if self.exchange.is_none() && (self.of.is_some() || self.operator.is_some()) => {
                Some("`of` and `operator` are for a node with an `exchange`".into())
            }
            (_, Some(_), _) if self.inputs.first().is_some_and(|selector| selector.take) => {
                Some("a branch cannot take its selector, which is its first input: let it read that".into())
            }
            _ => None,
        }
    }
}

impl Checked for InputForm {
    fn fault(&self) -> Option<String> {
        match (&self.node, self.state) {
            (Some(_), Some(_)) => Some("an input is a `node` or a `state`, not both".into()),
            (None, None) => Some("missing field `node`".into()),
            (None, Some(_)) if self.output > 0 || self.memory.is_some() || self.metadata => {
                Some("a state is read where it is, and whole: it has no `output`, `memory` or `metadata`".into())
            }
            _ => None,
        }
    }
}

/// Returns the expected number of iterations of a loop without the field.
pub(super) fn iterations_expected(max_iterations: Option<u64>) -> u64 {
    max_iterations.map_or(1, |max| max.min(1))
}

impl<'a> NodeForm<'a> {
    /// Returns the graphs in a loop or a branch, each with its place there.
    pub(super) fn inner(&self) -> Vec<(String, &'a RawValue)> {
        let repeat = self.repeat.iter().flat_map(|form| {
            let condition = form.condition.map(|condition| ("repeat.condition".to_owned(), condition));
            condition.into_iter().chain([("repeat.body".to_owned(), form.body)])
        });
        let arms = self.branch.iter().flat_map(|form| form.arms.iter().enumerate());
        repeat.chain(arms.map(|(number, &arm)| (format!("branch.arms[{number}]"), arm))).collect()
    }

    /// Returns the loop or the branch that the node is. `inner` returns its graphs, in the order of this
    /// form.
    pub(super) fn control(&self, inner: &mut impl FnMut() -> Arc<Shape>) -> Option<Control> {
        if let Some(RepeatForm { condition, iterations, max_iterations, .. }) = self.repeat {
            let (condition, body) = (condition.map(|_| inner()), inner());
            let iterations = iterations.unwrap_or(iterations_expected(max_iterations));
            return Some(Control::Repeat { condition, body, iterations, max_iterations });
        }
        let BranchForm { arms, taken } = self.branch.as_ref()?;
        Some(Control::Branch { arms: arms.iter().map(|_| inner()).collect(), taken: *taken })
    }
}

impl Checked for RepeatForm<'_> {
    fn fault(&self) -> Option<String> {
        let is_unknown = self.condition.is_none() && self.iterations.is_none();
        is_unknown.then(|| "a loop without a `condition` needs `iterations`: how often its body is run".into())
    }
}

impl Checked for BranchForm<'_> {
    fn fault(&self) -> Option<String> {
        let arms = self.arms.len();
        let taken = self.taken.filter(|&taken| taken as usize >= arms)?;
        Some(format!("arm {taken} is taken, and there are {arms}, counted from 0"))
    }
}

/// A form that must be an object in the file. On its own, serde would also accept a list of the fields in
/// order.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Checked> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Checked> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                let form = T::deserialize(MapAccessDeserializer::new(fields))?;
                form.fault().map_or(Ok(form), |fault| Err(A::Error::custom(fault)))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads a list of at most `max` items, so that a file cannot ask for more memory than the largest graph
/// needs.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D, max: usize) -> Result<Vec<T>, D::Error> {
    struct Items<T>(usize, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {}", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element()? {
                if items.len() == self.0 {
                    return Err(A::Error::custom(format!("the list is longer than {}", self.0)));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    from.deserialize_seq(Items(max, PhantomData))
}

/// A function that finds a node by its name. The second argument returns the place of the name in the file.
type Find<'a> = dyn Fn(&str, &dyn Fn() -> String) -> Result<NodeId> + 'a;

impl GraphForm<'_> {
    /// Returns the shape with its loops and branches. `place` is the place of the graph in the file, and
    /// `is_around` knows the nodes of the graphs around it.
    pub(super) fn shape(
        &self,
        place: &str,
        controls: Vec<Option<Arc<Control>>>,
        is_around: impl Fn(&str) -> bool,
    ) -> Result<Shape> {
        let mut shape = Shape::new();
        if let Some(name) = &self.name {
            shape.set_name(name.to_string());
        }
        let mut ids: HashMap<&str, NodeId> = HashMap::with_capacity(self.nodes.len());
        for ((index, node), control) in self.nodes.iter().enumerate().zip(controls) {
            if node.name.is_empty() {
                return Err(fault(&format!("{place}nodes[{index}].name"), "a node needs a name"));
            }
            let backend = node.backend.or_else(|| control.as_ref().map(|control| control.backend()));
            let id = shape.node(node.name.to_string(), backend.unwrap_or_default());
            if let Some(first) = ids.insert(&node.name, id) {
                return Err(fault(
                    &format!("{place}nodes[{index}].name"),
                    &format!("the name {} is that of {place}nodes[{}]: give each its own", quoted(&node.name), first.index()),
                ));
            }
            let changed = &mut shape.nodes_mut()[id.index()];
            changed.devices = node.devices.as_deref().map(Arc::from);
            changed.command = node.command.as_ref().map(|command| command.to_string().into());
            changed.cost_us = node.cost_us;
            changed.control = control;
            (changed.bytes, changed.ranks) = (node.bytes, node.ranks.map(RanksForm::ranks));
            let exchange = node.exchange.as_ref();
            changed.communication = exchange.map(|exchange| exchange.communication(node.of.as_ref(), node.operator.as_ref()));
        }
        let find = |name: &str, path: &dyn Fn() -> String| {
            let why = || match is_around(name) {
                true => {
                    format!("{} is outside of this graph: the loop or branch around can read it, or come after it", quoted(name))
                }
                false => {
                    let near = near_name(self.nodes.iter().map(|node| &*node.name), name);
                    let hint = near.map_or_else(String::new, |near| format!("; did you mean {}?", quoted(near)));
                    format!("there is no node named {}{hint}", quoted(name))
                }
            };
            ids.get(name).copied().ok_or_else(|| fault(&path(), &why()))
        };
        let links = self.links(&mut shape, place, &|name, path| find(name, path))?;
        for link in self.ordered(links).map_err(|why| fault(&format!("{place}edge_order"), &why))? {
            match link {
                Link::Edge(edge) => shape.edge(edge),
                Link::State { state, target } => shape.read_state(state, target),
            }
        }
        if self.outputs.is_some() {
            shape.no_outputs();
        }
        for (at, output) in self.outputs.iter().flatten().enumerate() {
            let node = find(&output.node, &|| format!("{place}outputs[{at}].node"))?;
            shape.output(node, output.output);
        }
        Ok(shape)
    }

    /// Returns the edges, with the reads of states among them, and records the taken inputs.
    fn links(&self, shape: &mut Shape, place: &str, find: &Find<'_>) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let target = NodeId(index as u32);
            for (input, at) in node.inputs.iter().zip(0..) {
                if input.take {
                    shape.take_input(target, at);
                }
                links.extend(input.state.map(|state| Link::State { state, target }));
                let Some(source) = &input.node else { continue };
                let source = find(source, &|| format!("{place}nodes[{index}].inputs[{at}].node"))?;
                let kind = EdgeKind::Data { output: input.output, memory: input.memory, metadata: input.metadata };
                links.push(Link::Edge(Edge { source, target, kind }));
            }
            for (at, after) in node.after.iter().enumerate() {
                let source = find(after, &|| format!("{place}nodes[{index}].after[{at}]"))?;
                links.push(Link::Edge(Edge { source, target, kind: EdgeKind::Order }));
            }
        }
        for (at, (source, target)) in self.edges.iter().enumerate() {
            let source = find(source, &|| format!("{place}edges[{at}][0]"))?;
            let target = find(target, &|| format!("{place}edges[{at}][1]"))?;
            links.push(Link::Edge(Edge { source, target, kind: EdgeKind::Order }));
        }
        Ok(links)
    }

    /// Puts edges and reads of states into the order that `edge_order` gives.
    fn ordered(&self, links: Vec<Link>) -> Result<Vec<Link>, String> {
        if self.edge_order.is_empty() {
            return Ok(links);
        }
        let (count, said) = (links.len(), self.edge_order.len());
        if said != count {
            return Err(format!(
                "gives {said} places for the {count} entries of `inputs`, `after` and `edges`: give one for each"
            ));
        }
        let reader = |link: &Link| match *link {
            Link::Edge(edge) => edge.is_data().then_some(edge.target),
            Link::State { target, .. } => Some(target),
        };
        let mut pairs = links.windows(2).zip(self.edge_order.windows(2));
        if pairs
            .any(|(links, places)| reader(&links[0]).is_some() && reader(&links[0]) == reader(&links[1]) && places[0] > places[1])
        {
            return Err("the inputs of a node are out of order: give each a later place than the one before it".into());
        }
        let mut ordered: Vec<Option<Link>> = vec![None; count];
        for (link, &place) in links.into_iter().zip(&self.edge_order) {
            match ordered.get_mut(place as usize) {
                Some(free @ None) => *free = Some(link),
                Some(_) => return Err(format!("the place {place} is given twice: give each entry a place of its own")),
                None => return Err(format!("the place {place}, counted from 0, is out of range: there are {count} entries")),
            }
        }
        Ok(ordered.into_iter().flatten().collect())
    }
}
