//! An outline as data: the JSON form.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::outline::{Access, Mode, OpKind, Operation, Outline, StoreId};
use super::part::{Part, shape};
use crate::error::{Kind, Result};
use crate::graph::{json_fault, no_json};
use crate::name::Name;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutlineForm {
    #[serde(default)]
    id: Option<String>,
    stores: BTreeMap<String, Vec<u64>>,
    ops: Vec<OpForm>,
    #[serde(default = "eight")]
    element_bytes: u64,
    #[serde(default)]
    keep: Vec<String>,
    // Verdicts on it, which are not read.
    #[serde(default, rename = "why")]
    _why: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "legate")]
    _legate: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "legate_observed")]
    _observed: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "rule_strict")]
    _strict: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "rule_relaxed_groups")]
    _relaxed: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "exact_in_order_batches")]
    _in_order: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpForm {
    op: String,
    #[serde(default)]
    launch: Option<Vec<u64>>,
    #[serde(default)]
    kind: KindForm,
    #[serde(default)]
    access: Vec<AccessForm>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum KindForm {
    #[default]
    Task,
    Fill,
    HostRead,
    Image,
    Concurrent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessForm {
    store: String,
    mode: ModeForm,
    #[serde(default)]
    part: Option<PartForm>,
    /// Before and behind: of all axes, or of each.
    #[serde(default)]
    halo: Option<Vec<HaloForm>>,
    #[serde(default)]
    transpose: bool,
    #[serde(default)]
    redop: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ModeForm {
    Read,
    Write,
    Reduce,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartForm {
    tile: Vec<u64>,
    #[serde(default)]
    colors: Option<Vec<u64>>,
    #[serde(default)]
    offset: Option<Vec<i64>>,
    /// The axes of the launch that count the tiles.
    #[serde(default)]
    by: Option<Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HaloForm {
    Same(u64),
    Each(Vec<u64>),
}

impl HaloForm {
    fn of(self, axes: usize) -> Vec<u64> {
        match self {
            Self::Same(elements) => vec![elements; axes],
            Self::Each(each) => each,
        }
    }
}

fn eight() -> u64 {
    8
}

impl Outline {
    /// Reads outlines from JSON: an object, or a list of them.
    ///
    /// ```json
    /// {
    ///   "id": "blur",
    ///   "stores": {"a": [64], "b": [64]},
    ///   "element_bytes": 8, "keep": ["b"],
    ///   "ops": [
    ///     {"op": "fill", "launch": [8], "access": [{"store": "a", "mode": "write", "part": {"tile": [8]}}]},
    ///     {"op": "blur", "launch": [8], "access": [
    ///       {"store": "a", "mode": "read", "part": {"tile": [8], "offset": [0]}, "halo": [1, 1]},
    ///       {"store": "b", "mode": "write", "part": {"tile": [8], "colors": [8]}}]}
    ///   ]
    /// }
    /// ```
    ///
    /// A launch that is null, or missing, is one batch; a part that is null is the whole store. A mode is
    /// `read`, `write` or `reduce` (with an operator: `"redop": "add"`), a kind is `task`, `fill`,
    /// `host_read`, `image` or `concurrent`. `"transpose": true` reads the transposed store; a halo is one
    /// number for all axes, before and behind, or a list for each; `"by"` names the axes of the launch that
    /// count the tiles. Colours are the launch, and may be left out.
    ///
    /// # Errors
    /// Names the place in the file and the fault. Parts are checked by [`Outline::stream`].
    pub fn from_json(text: &str) -> Result<Vec<Self>> {
        if let Some(why) = no_json(text) {
            return Err(json_fault("", &why));
        }
        let is_list = text.trim_start().starts_with('[');
        let forms: Vec<OutlineForm> = if is_list { read(text)? } else { vec![read(text)?] };
        let place = |at: usize| if is_list { format!("[{at}].") } else { String::new() };
        forms.into_iter().enumerate().map(|(at, form)| form.outline(&place(at))).collect()
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let form = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        json_fault(if path == "." || path == "?" { "" } else { &path }, &error.into_inner().to_string())
    })?;
    reader.end().map_err(|error| json_fault("", &error.to_string()))?;
    Ok(form)
}

impl OutlineForm {
    fn outline(self, place: &str) -> Result<Outline> {
        let mut outline = Outline { name: self.id.map(Name::from), ..Outline::new() };
        let mut stores: BTreeMap<String, StoreId> = BTreeMap::new();
        for (name, extents) in self.stores {
            let store = outline.store(name.clone(), extents, self.element_bytes);
            stores.insert(name, store);
        }
        let unknown = |place: &str, name: &str| {
            let known = stores.keys().cloned().map(Name::from).collect();
            Kind::UnknownStore { place: place.into(), store: name.to_owned(), known }.into()
        };
        for (at, name) in self.keep.iter().enumerate() {
            let store = stores.get(name).ok_or_else(|| unknown(&format!("{place}keep[{at}]"), name))?;
            outline.keep(*store);
        }
        for (at, form) in self.ops.into_iter().enumerate() {
            let kind = form.kind.kind();
            let mut op = Operation { name: form.op.into(), kind, launch: form.launch, accesses: Vec::new() };
            for (number, access) in form.access.into_iter().enumerate() {
                let place = format!("{place}ops[{at}].access[{number}]");
                let store = *stores.get(&access.store).ok_or_else(|| unknown(&place, &access.store))?;
                op.accesses.push(access.access(store, &op, &place)?);
            }
            outline.op(op);
        }
        Ok(outline)
    }
}

impl KindForm {
    fn kind(&self) -> OpKind {
        match self {
            Self::Task => OpKind::Task,
            Self::Fill => OpKind::Fill,
            Self::HostRead => OpKind::HostRead,
            Self::Image => OpKind::Image,
            Self::Concurrent => OpKind::Concurrent,
        }
    }
}

impl AccessForm {
    fn access(self, store: StoreId, op: &Operation, place: &str) -> Result<Access> {
        let fault = |why: &str| Err(json_fault(place, why));
        let mode = match (self.mode, self.redop) {
            (ModeForm::Read, None) => Mode::Read,
            (ModeForm::Write, None) => Mode::Write,
            (ModeForm::Reduce, Some(operator)) => Mode::Reduce(operator.into()),
            (ModeForm::Reduce, None) => return fault("a reduction has an operator: add \"redop\": \"add\", or its name"),
            (_, Some(_)) => return fault("only a reduction has a `redop`"),
        };
        let Some(form) = self.part else {
            return match (self.halo, self.transpose) {
                (None, false) => Ok(Access { store, mode, part: Part::whole() }),
                _ => fault("the whole store has no halo and no transposed tiles: give a `part`"),
            };
        };
        let axes = form.tile.len();
        let counted = |axis: usize| op.axes().get(axis).copied().unwrap_or(1);
        let by = form.by.clone().unwrap_or_else(|| (0..axes).collect());
        let tiles: Vec<u64> = by.into_iter().map(counted).collect();
        if let Some(colors) = form.colors.filter(|colors| *colors != tiles) {
            let (colors, tiles) = (shape(&colors), shape(&tiles));
            return fault(&format!(
                "the part has {colors} tiles, and the launch of '{}' counts {tiles}: leave `colors` out, or launch as many",
                op.name
            ));
        }
        let mut part = Part::tiles(form.tile);
        if let Some(offset) = form.offset {
            part = part.offset(offset);
        }
        if let Some(halo) = self.halo {
            let sides = halo.len();
            let Ok([before, behind]) = <[HaloForm; 2]>::try_from(halo) else {
                return fault(&format!("a halo has two sides, before and behind, and this one has {sides}"));
            };
            part = part.halo(before.of(axes), behind.of(axes));
        }
        if let Some(by) = form.by {
            part = part.by(by);
        }
        Ok(Access { store, mode, part: if self.transpose { part.transposed() } else { part } })
    }
}
