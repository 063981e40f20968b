//! The memory of the values in flight.

use super::check::Checked;

/// Returns the lag of feedback between these phases; 0 counts as phase 1.
fn lag(from: u32, to: u32) -> u64 {
    u64::from(1 + from.max(1) - to.max(1))
}

/// Returns the bytes of all values that are alive at once; see
/// [`Phasing::bytes_in_flight`](super::Phasing::bytes_in_flight).
pub(super) fn bytes_in_flight(checked: &Checked, phases: &[u32]) -> u64 {
    let nodes = checked.nodes.len();
    let (mut values, mut feedback) = (vec![0u64; nodes], vec![0u64; nodes]);
    for edge in &checked.edges {
        let (from, to) = (phases[edge.source], phases[edge.target]);
        let (most, iterations) = match edge.is_feedback {
            true => (&mut feedback[edge.source], lag(from, to)),
            // An edge of an unpipelined node stays within the schedule iteration.
            false if from == 0 || to == 0 => (&mut values[edge.source], 1),
            false => (&mut values[edge.source], u64::from(to - from) + 1),
        };
        *most = (*most).max(edge.bytes.saturating_mul(iterations));
    }
    values.iter().chain(&feedback).fold(0, |sum, &bytes| sum.saturating_add(bytes))
}
