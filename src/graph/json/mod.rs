//! A shape as data: the JSON form of a graph without closures. A mistake in a file gives an error with its
//! place, never a panic, and no function recurses over nested graphs.

mod fault;
mod forms;
mod ranks;
mod read;
mod write;

pub(crate) use fault::fault;
pub(crate) use read::no_json;

use super::Shape;
use crate::error::Result;

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
    /// A node is a loop if it has `"repeat": {"condition": {...}, "body": {...}, "iterations": 5,
    /// "max_iterations": 100}`, and a branch if it has `"branch": {"arms": [{...}, ...], "taken": 0}`, in
    /// which `{...}` are graphs.
    ///
    /// In such a node, `"take": true` at an input takes its value. `"outputs": []` in an inner graph means
    /// that it gives no values.
    ///
    /// Required are `nodes`, and in each node `name` and `backend`. A loop or a branch needs no `backend`; it
    /// needs only its `body` or `arms`. `after` and `edges` are order-only. Nodes may be in any order. Edges
    /// keep their order: first those of `inputs` and `after`, node by node, then `edges`. Unknown keys are
    /// errors.
    ///
    /// # Errors
    /// The error names the place in the file, by path and by line, and the fault: no JSON (or JSON that is
    /// not plain UTF-8: with a byte order mark, or as UTF-16), an unknown key, a number out of range, a name
    /// used twice, an unknown producer, an edge from a node to itself, a cycle (with its nodes).
    ///
    /// # Examples
    /// ```
    /// use anabranch::graph::Shape;
    /// use anabranch::Ranked;
    ///
    /// let shape = Shape::from_json(r#"{"nodes": [{"name": "a", "backend": "gpu"}, {"name": "b", "backend": "gpu", "after": ["a"]}]}"#)?;
    /// assert_eq!(shape.schedule()?.streams(), 1);
    ///
    /// let error = Shape::from_json(r#"{"nodes": [{"name": "a", "backend": "tpu"}]}"#).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "nodes[0].backend: unknown variant `tpu`, expected one of `cpu`, `mixed`, `gpu` at line 1 column 41"
    /// );
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        read::shape(text)
    }

    /// Writes the JSON form that [`Shape::from_json`] reads. If the shape can be scheduled and is nested no
    /// deeper than 64, reading the text gives an equal shape.
    ///
    /// A shape is checked when it is read or scheduled, not when it is written. If an edge or an output names
    /// a node that the shape does not have, it is written with a name that no node has. Then `from_json`
    /// returns an error.
    pub fn to_json(&self) -> String {
        write::json(self)
    }
}
