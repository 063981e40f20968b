//! A shape as data: the JSON form of a graph without closures. Reading gives an error that says where in the
//! file, never a panic, and nothing recurses over graphs in graphs.

mod fault;
mod forms;
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
    /// An input of these is taken with `"take": true`, and `"outputs": []` in them gives nothing.
    ///
    /// Only `nodes`, and `name` and `backend` of each, are required; `backend` not of loops and branches, and
    /// of these only `body` and `arms`. `after` and `edges` are order-only. Nodes may stand in any order;
    /// edges keep theirs: first those of `inputs` and `after`, node by node, then `edges`. Unknown keys are
    /// errors.
    ///
    /// # Errors
    /// Names the place in the file, by path and by line, and says what is wrong: no JSON (or JSON that is not
    /// plain UTF-8: with a byte order mark, or as UTF-16), an unknown key, a number out of range, a name used
    /// twice, an unknown producer, an edge to itself, a circle (with its nodes).
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

    /// Writes the JSON form that [`Shape::from_json`] reads. That returns an equal shape, if the shape can be
    /// scheduled and is nested no deeper than 64.
    ///
    /// A shape is checked when it is read or scheduled, not when it is written. If an edge or an output names
    /// a node that the shape does not have, it is written with a name that no node has. Then `from_json`
    /// returns an error.
    pub fn to_json(&self) -> String {
        write::json(self)
    }
}
