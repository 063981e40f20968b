//! The worst-case execution times: a YAML file with a number of nanoseconds for each key.

use std::fmt;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

use super::forms::Map;
use crate::graph::COST_US_MAX;

/// The cost of a pass that has no entry, in nanoseconds.
pub const WCET_DEFAULT_NS: f64 = 1e6;
/// The largest cost, in nanoseconds.
const COST_NS_MAX: f64 = COST_US_MAX * 1e3;
/// The most entries of one file.
const ENTRIES_MAX: usize = 1 << 20;

/// Returns the entries of a file, or the fault that it has.
pub(super) fn costs(text: &str) -> Result<Map<f64>, String> {
    // An empty file is an empty document, and has no costs.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Map::default());
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: 2 * ENTRIES_MAX + 1, max_events: 4 * ENTRIES_MAX, max_depth: 4 },
        with_snippet: false,
    };
    let costs: Map<Cost> = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            let path = error.path().to_string();
            let fault = error.into_inner();
            if path == "." || path == "?" { fault } else { serde_saphyr::Error::custom(format!("{path}: {fault}")) }
        })
    })
    .map_err(|error| error.to_string())?;
    Ok(Map(costs.0.into_iter().map(|(key, Cost(ns))| (key, ns)).collect()))
}

struct Cost(f64);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Nanoseconds;

        impl Visitor<'_> for Nanoseconds {
            type Value = f64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of nanoseconds")
            }

            fn visit_u64<E: serde::de::Error>(self, ns: u64) -> Result<f64, E> {
                Ok(ns as f64)
            }

            fn visit_i64<E: serde::de::Error>(self, ns: i64) -> Result<f64, E> {
                Ok(ns as f64)
            }

            fn visit_f64<E: serde::de::Error>(self, ns: f64) -> Result<f64, E> {
                Ok(ns)
            }
        }

        let ns = from.deserialize_any(Nanoseconds)?;
        let is_right = (0.0..=COST_NS_MAX).contains(&ns);
        if is_right { Ok(Self(ns)) } else { Err(D::Error::custom(format!("the cost is {ns:?} ns; it must be from 0 to 10^15"))) }
    }
}
