//! Nodes that mix the data of different items. Only unpipelined nodes make that possible, because they read
//! and are read within the schedule iteration.

use super::check::Checked;

/// The items that a value stems from, as how many items they are behind that of the first phase; and a node
/// that has each.
#[derive(Clone, Copy)]
struct Stems {
    newest: (u32, usize),
    oldest: (u32, usize),
}

impl Stems {
    fn of(behind: u32, node: usize) -> Self {
        Self { newest: (behind, node), oldest: (behind, node) }
    }

    fn with(self, other: Self) -> Self {
        let newest = if other.newest.0 < self.newest.0 { other.newest } else { self.newest };
        let oldest = if other.oldest.0 > self.oldest.0 { other.oldest } else { self.oldest };
        Self { newest, oldest }
    }
}

/// Returns a warning for each node that mixes items. An unpipelined node without inputs has the newest item.
pub(super) fn warnings(checked: &Checked, phases: &[u32]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut stems: Vec<Stems> = (0..phases.len()).map(|node| Stems::of(phases[node].saturating_sub(1), node)).collect();
    let name = |node: usize| checked.name(node);
    for &node in &checked.order {
        // A phase works on one item, and so do all that it reads by phase.
        let own = (phases[node] > 0).then_some(stems[node]);
        let read = checked.sources[node].iter().filter(|&&source| own.is_none() || phases[source] == 0);
        let Some(all) = own.into_iter().chain(read.map(|&source| stems[source])).reduce(Stems::with) else { continue };
        let (newest, oldest) = (all.newest, all.oldest);
        if own.is_none() {
            stems[node] = all;
        }
        if newest.0 == oldest.0 {
            continue;
        }
        let (new, old) = (behind(newest.0), behind(oldest.0));
        warnings.push(match own {
            None => format!(
                "unpipelined node '{}' mixes the data of different items: in one schedule iteration, '{}' has item {new} and '{}' has item {old}",
                name(node),
                name(newest.1),
                name(oldest.1),
            ),
            Some(_) => {
                let from = if newest.1 == node { oldest } else { newest };
                format!(
                    "node '{}' of phase {} works on item {} and gets data of item {} from '{}', through unpipelined nodes",
                    name(node),
                    phases[node],
                    behind(phases[node] - 1),
                    behind(from.0),
                    name(from.1),
                )
            }
        });
    }
    warnings
}

fn behind(items: u32) -> String {
    if items == 0 { "N".into() } else { format!("N - {items}") }
}
