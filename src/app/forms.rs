//! The JSON forms of the files. A key that concerns no graph, schedule or phase is not read; a key that
//! stands twice is an error.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::fault::quoted;
use super::ports::Mode;
use super::processor::Processor;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppForm {
    pub(super) name: String,
    #[serde(default)]
    pub(super) subcomponents: Map<Object<SubcomponentForm>>,
    #[serde(default)]
    pub(super) connections: Vec<Object<ConnectionForm>>,
    #[serde(default)]
    pub(super) processes: Map<Object<ProcessForm>>,
    #[serde(default)]
    pub(super) states: Map<Object<StateForm>>,
    #[serde(default)]
    pub(super) stm_schedules: Map<Object<ScheduleForm>>,
    #[serde(default)]
    pub(super) stm_external_runnables: Map<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GraphletForm {
    #[serde(default)]
    pub(super) input_ports: Map<Object<PortForm>>,
    #[serde(default)]
    pub(super) output_ports: Map<Object<PortForm>>,
    #[serde(default)]
    pub(super) subcomponents: Map<Object<SubcomponentForm>>,
    #[serde(default)]
    pub(super) connections: Vec<Object<ConnectionForm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeForm {
    pub(super) name: String,
    #[serde(default)]
    pub(super) input_ports: Map<Object<PortForm>>,
    #[serde(default)]
    pub(super) output_ports: Map<Object<PortForm>>,
    pub(super) passes: Vec<Object<PassForm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PortForm {
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) binding_required: Option<bool>,
    #[serde(default)]
    pub(super) array: Option<u32>,
    /// Not in the original: the size of a message.
    #[serde(default)]
    pub(super) bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PassForm {
    pub(super) name: String,
    pub(super) processor_types: Vec<Processor>,
    #[serde(default)]
    pub(super) dependencies: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubcomponentForm {
    pub(super) component_type: String,
}

#[derive(Deserialize)]
pub(super) struct ConnectionForm {
    pub(super) src: String,
    pub(super) dests: Map<Object<ParamsForm>>,
    #[serde(default)]
    pub(super) params: Option<Object<ParamsForm>>,
}

/// Of the parameters of a connection, those that concern order and capacity.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ParamsForm {
    #[serde(default)]
    pub(super) fifo_size: Option<u32>,
    #[serde(default)]
    pub(super) mode: Option<Mode>,
    #[serde(default)]
    pub(super) reuse: Option<bool>,
    #[serde(default)]
    pub(super) indirect: Option<bool>,
    #[serde(default)]
    pub(super) data_offset: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessForm {
    #[serde(default)]
    pub(super) subcomponents: Vec<String>,
    #[serde(default)]
    pub(super) run_on: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateForm {
    pub(super) stm_schedule_key: String,
    #[serde(rename = "default", default)]
    pub(super) is_default: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScheduleForm {
    #[serde(default)]
    pub(super) wcet: Option<String>,
    pub(super) hyperepochs: Map<Object<HyperepochForm>>,
    #[serde(default)]
    pub(super) pass_dependencies: Map<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct HyperepochForm {
    pub(super) period: u64,
    #[serde(default)]
    pub(super) resources: Map<Vec<String>>,
    pub(super) epochs: Map<Object<EpochForm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EpochForm {
    #[serde(default)]
    pub(super) period: Option<u64>,
    #[serde(default)]
    pub(super) frames: Option<u32>,
    pub(super) passes: Rows,
    #[serde(default)]
    pub(super) alias_groups: Map<Vec<String>>,
}

/// The rows of an epoch. A list of names is refused with a text that shows the form.
pub(super) struct Rows(pub(super) Vec<Vec<String>>);

const ROWS: &str = "`passes` is a list of rows, row 0 without a phase and then a row for each phase, as in \
                    [[], [\"top.a\"], [\"top.b\"]]";

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Row(Vec<String>);
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of names: {ROWS}")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Row, E> {
                Err(E::custom(format!("the name {} stands where a row of names is wanted: {ROWS}", quoted(name))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Row, A::Error> {
                let mut row = Vec::new();
                while let Some(name) = names.next_element()? {
                    row.push(name);
                }
                Ok(Row(row))
            }
        }

        impl<'de> Deserialize<'de> for Row {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Names)
            }
        }

        Ok(Self(Vec::<Row>::deserialize(from)?.into_iter().map(|Row(names)| names).collect()))
    }
}

/// A form that is an object in the file. Serde alone would accept a list of its fields, too.
#[derive(Clone, Default)]
pub(super) struct Object<T>(T);

impl<T> Object<T> {
    pub(super) fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

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

/// An object with any keys, in the order of the file.
pub(super) struct Map<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Map<T> {
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Map<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Map<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Map<T>, A::Error> {
                let (mut all, mut seen) = (Vec::new(), HashSet::new());
                while let Some(key) = entries.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom(format!("the key {} stands twice", quoted(&key))));
                    }
                    all.push((key, entries.next_value()?));
                }
                Ok(Map(all))
            }
        }

        from.deserialize_map(Entries(PhantomData))
    }
}
