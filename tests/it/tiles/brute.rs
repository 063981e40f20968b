//! How two uses of a store meet, element by element.

use std::collections::{HashMap, HashSet};

/// A use of a store as plain data: for each axis of the store its tiles.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    pub(super) launch: Vec<u64>,
    /// None: the whole store.
    pub(super) axes: Option<Vec<Axis>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) tile: u64,
    pub(super) offset: i64,
    pub(super) halo: (u64, u64),
    pub(super) by: usize,
}

impl Uses {
    fn batches(&self) -> u64 {
        self.launch.iter().product()
    }

    /// Returns the elements that a batch uses.
    fn elements(&self, extents: &[u64], batch: u64) -> HashSet<Vec<i64>> {
        let mut point = vec![0; self.launch.len()];
        let mut rest = batch;
        for axis in (0..self.launch.len()).rev() {
            point[axis] = (rest % self.launch[axis]) as i64;
            rest /= self.launch[axis];
        }
        let interval = |axis: usize| match &self.axes {
            None => 0..extents[axis] as i64,
            Some(axes) => {
                let Axis { tile, offset, halo, by } = axes[axis];
                let start = offset + tile as i64 * point[by];
                let end = start + tile as i64 + halo.1 as i64;
                (start - halo.0 as i64).max(0)..end.min(extents[axis] as i64)
            }
        };
        let mut all = vec![Vec::new()];
        for axis in 0..extents.len() {
            all = all
                .iter()
                .flat_map(|start: &Vec<i64>| interval(axis).map(|at| start.iter().copied().chain([at]).collect()))
                .collect();
        }
        all.into_iter().collect()
    }
}

/// Returns the lag and the reach; None if no element is shared.
pub(super) fn meeting(extents: &[u64], earlier: &Uses, later: &Uses) -> Option<(i64, i64)> {
    let mut users: HashMap<Vec<i64>, Vec<i64>> = HashMap::new();
    for batch in 0..earlier.batches() {
        for element in earlier.elements(extents, batch) {
            users.entry(element).or_default().push(batch as i64);
        }
    }
    let mut met = None;
    for batch in 0..later.batches() {
        for element in later.elements(extents, batch) {
            for &other in users.get(&element).into_iter().flatten() {
                let (lag, reach) = met.unwrap_or((i64::MIN, i64::MIN));
                met = Some((lag.max(other - batch as i64), reach.max(batch as i64 - other)));
            }
        }
    }
    met
}
