//! A shape as data: the JSON form of a graph without closures. Reading gives an error that says where in the file, never a panic.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Backend, COST_US_MAX, DEVICE_MAX, Edge, EdgeKind, Memory, NODES_MAX, NodeId, Shape, check};
use crate::error::{Kind, Result};

/// The most items that a list in the file may have: edges, inputs, outputs.
const ITEMS_MAX: usize = 1 << 26;
/// The longest fault that is repeated in an error, in characters.
const FAULT_CHARS_MAX: usize = 240;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GraphForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(deserialize_with = "nodes")]
    nodes: Vec<NodeForm>,
    #[serde(default, deserialize_with = "lists", skip_serializing_if = "Vec::is_empty")]
    edges: Vec<(String, String)>,
    #[serde(default, deserialize_with = "items", skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<OutputForm>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct NodeForm {
    name: String,
    backend: BackendForm,
    #[serde(default, deserialize_with = "items", skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<InputForm>,
    #[serde(default, deserialize_with = "lists", skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    #[serde(default, deserialize_with = "devices", skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default = "one", deserialize_with = "cost", skip_serializing_if = "is_one")]
    cost_us: f64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct InputForm {
    node: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    output: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryForm>,
    #[serde(default, skip_serializing_if = "is_false")]
    metadata: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OutputForm {
    node: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    output: u32,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum BackendForm {
    Cpu,
    Mixed,
    Gpu,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum MemoryForm {
    Cpu,
    Gpu,
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
    if is_right { Ok(cost) } else { Err(D::Error::custom(format!("a cost of {cost:?} us: a cost is from 0 to 10^12"))) }
}

fn devices<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u32>>, D::Error> {
    let devices: Vec<u32> = bounded(from, DEVICE_MAX as usize + 1)?;
    match devices.iter().find(|&&device| device > DEVICE_MAX) {
        Some(device) => Err(D::Error::custom(format!("device {device} is out of range: the largest is {DEVICE_MAX}"))),
        None => Ok(Some(devices)),
    }
}

fn nodes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeForm>, D::Error> {
    Ok(bounded::<D, Object<NodeForm>>(from, NODES_MAX)?.into_iter().map(|Object(form)| form).collect())
}

fn items<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(bounded::<D, Object<T>>(from, ITEMS_MAX)?.into_iter().map(|Object(form)| form).collect())
}

fn lists<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    bounded(from, ITEMS_MAX)
}

/// A form that is an object in the file. By itself serde would take a list of its fields in order, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads a list that ends by `max` items, so that no file can ask for more memory than a graph of the largest size.
fn bounded<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D, max: usize) -> Result<Vec<T>, D::Error> {
    struct Items<T>(usize, PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for Items<T> {
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

impl Shape {
    /// Reads a graph without closures from its JSON form.
    ///
    /// ```json
    /// {
    ///   "name": "example",
    ///   "nodes": [
    ///     {"name": "a", "backend": "gpu"},
    ///     {"name": "b", "backend": "cpu", "inputs": [{"node": "a", "output": 0, "memory": "gpu", "metadata": false}]},
    ///     {"name": "c", "backend": "gpu", "devices": [0, 1], "command": "allreduce", "cost_us": 12.5,
    ///      "inputs": [{"node": "b"}], "after": ["a"]}
    ///   ],
    ///   "edges": [["a", "b"]],
    ///   "outputs": [{"node": "c", "output": 0}]
    /// }
    /// ```
    ///
    /// Only `nodes`, and `name` and `backend` of each, are required. `after` and `edges` are order-only. Nodes may stand in any order;
    /// edges keep theirs: first those of `inputs` and `after`, node by node, then `edges`. Unknown keys are errors.
    ///
    /// # Errors
    /// Names the place in the file, by path and by line, and says what is wrong: no JSON, a key that there is not, a number out of
    /// range, a name used twice, a producer that there is not, an edge to itself, a circle (with its nodes).
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Ranked, Shape};
    ///
    /// let shape = Shape::from_json(r#"{"nodes": [{"name": "a", "backend": "gpu"}, {"name": "b", "backend": "gpu", "after": ["a"]}]}"#)?;
    /// assert_eq!(shape.schedule(&Ranked::new())?.streams(), 1);
    ///
    /// let error = Shape::from_json(r#"{"nodes": [{"name": "a", "backend": "tpu"}]}"#).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "nodes[0].backend: unknown variant `tpu`, expected one of `cpu`, `mixed`, `gpu` at line 1 column 41"
    /// );
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let Object::<GraphForm>(form) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            fault(if path == "." || path == "?" { "" } else { &path }, &error.into_inner().to_string())
        })?;
        reader.end().map_err(|error| fault("", &error.to_string()))?;
        let shape = form.shape()?;
        check(&shape)?;
        Ok(shape)
    }

    /// Writes the JSON form that [`Shape::from_json`] reads. Edges whose place among the others cannot be said by `inputs` and `after`
    /// come back in another order.
    pub fn to_json(&self) -> String {
        let name = |node: NodeId| self.name_of(node).to_string();
        let mut nodes: Vec<NodeForm> = self
            .nodes()
            .iter()
            .map(|node| NodeForm {
                name: node.name.to_string(),
                backend: match node.backend {
                    Backend::Cpu => BackendForm::Cpu,
                    Backend::Mixed => BackendForm::Mixed,
                    Backend::Gpu => BackendForm::Gpu,
                },
                inputs: Vec::new(),
                after: Vec::new(),
                devices: node.devices.as_ref().map(|devices| devices.to_vec()),
                command: node.command.as_ref().map(|command| command.to_string()),
                cost_us: node.cost_us,
            })
            .collect();
        // Order-only edges that nothing of the nodes' own comes after can stand at the end, where they keep their order.
        let own = self.edges().iter().rposition(Edge::is_data).map_or(0, |last| last + 1);
        for edge in &self.edges()[..own] {
            let target = &mut nodes[edge.target.index()];
            match edge.kind {
                EdgeKind::Order => target.after.push(name(edge.source)),
                EdgeKind::Data { output, memory, metadata } => {
                    let form = if memory == Memory::Gpu { MemoryForm::Gpu } else { MemoryForm::Cpu };
                    let memory = (memory != self.memory_of(edge.source)).then_some(form);
                    target.inputs.push(InputForm { node: name(edge.source), output, memory, metadata });
                }
            }
        }
        let edges = self.edges()[own..].iter().map(|edge| (name(edge.source), name(edge.target))).collect();
        let outputs = self.outputs().iter().map(|&(node, output)| OutputForm { node: name(node), output }).collect();
        let form = GraphForm { name: self.name().map(str::to_owned), nodes, edges, outputs };
        serde_json::to_string_pretty(&form).expect("the form has string keys only")
    }
}

impl GraphForm {
    fn shape(self) -> Result<Shape> {
        let mut shape = Shape::new();
        if let Some(name) = &self.name {
            shape.set_name(name.as_str());
        }
        let mut ids: HashMap<&str, NodeId> = HashMap::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            if node.name.is_empty() {
                return Err(fault(&format!("nodes[{index}].name"), "a node needs a name"));
            }
            let id = shape.node(node.name.as_str(), node.backend.into());
            if let Some(first) = ids.insert(&node.name, id) {
                return Err(fault(
                    &format!("nodes[{index}].name"),
                    &format!("the name {} is that of nodes[{}]: give each its own", quoted(&node.name), first.index()),
                ));
            }
            let changed = &mut shape.nodes_mut()[id.index()];
            changed.devices = node.devices.as_deref().map(Arc::from);
            changed.command = node.command.as_deref().map(Arc::from);
            changed.cost_us = node.cost_us;
        }
        let find = |name: &str, path: &dyn Fn() -> String| {
            ids.get(name).copied().ok_or_else(|| fault(&path(), &format!("there is no node named {}", quoted(name))))
        };
        for (index, node) in self.nodes.iter().enumerate() {
            let target = ids[&*node.name];
            for (place, input) in node.inputs.iter().enumerate() {
                let source = find(&input.node, &|| format!("nodes[{index}].inputs[{place}].node"))?;
                let memory = input.memory.map_or_else(|| shape.memory_of(source), Memory::from);
                let kind = EdgeKind::Data { output: input.output, memory, metadata: input.metadata };
                shape.edge(Edge { source, target, kind });
            }
            for (place, after) in node.after.iter().enumerate() {
                shape.order(find(after, &|| format!("nodes[{index}].after[{place}]"))?, target);
            }
        }
        for (place, (source, target)) in self.edges.iter().enumerate() {
            let source = find(source, &|| format!("edges[{place}][0]"))?;
            shape.order(source, find(target, &|| format!("edges[{place}][1]"))?);
        }
        for (place, output) in self.outputs.iter().enumerate() {
            shape.output(find(&output.node, &|| format!("outputs[{place}].node"))?, output.output);
        }
        Ok(shape)
    }
}

impl From<BackendForm> for Backend {
    fn from(form: BackendForm) -> Self {
        match form {
            BackendForm::Cpu => Self::Cpu,
            BackendForm::Mixed => Self::Mixed,
            BackendForm::Gpu => Self::Gpu,
        }
    }
}

impl From<MemoryForm> for Memory {
    fn from(form: MemoryForm) -> Self {
        match form {
            MemoryForm::Cpu => Self::Cpu,
            MemoryForm::Gpu => Self::Gpu,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("'{}'", shortened(name, 64))
}

fn shortened(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

fn fault(path: &str, fault: &str) -> crate::error::Error {
    let place = if path.is_empty() { String::new() } else { format!("{}: ", shortened(path, FAULT_CHARS_MAX)) };
    // What is repeated of the file may be as long as the file; where it is comes last, and is kept.
    let fault = match fault.rsplit_once(" at line ") {
        Some((what, line)) => format!("{} at line {line}", shortened(what, FAULT_CHARS_MAX)),
        None => shortened(fault, FAULT_CHARS_MAX).into_owned(),
    };
    Kind::Json { place, fault }.into()
}
