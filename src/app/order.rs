//! Orders and cycles of small graphs.

/// The predecessors and successors of each of `count` nodes.
fn successors(count: usize, edges: &[(u32, u32)]) -> (Vec<Vec<u32>>, Vec<u32>) {
    let (mut next, mut before) = (vec![Vec::new(); count], vec![0_u32; count]);
    for &(source, target) in edges {
        next[source as usize].push(target);
        before[target as usize] += 1;
    }
    (next, before)
}

/// Returns the nodes in an order in which the source of each edge comes before its target. Nodes of a cycle,
/// and those behind one, are left out.
pub(super) fn topological(count: usize, edges: &[(u32, u32)]) -> Vec<u32> {
    let (next, mut before) = successors(count, edges);
    let mut order: Vec<u32> = (0..count as u32).filter(|&node| before[node as usize] == 0).collect();
    let mut done = 0;
    while done < order.len() {
        for &target in &next[order[done] as usize] {
            before[target as usize] -= 1;
            if before[target as usize] == 0 {
                order.push(target);
            }
        }
        done += 1;
    }
    order
}

/// Returns the nodes of a cycle, from one of them to the same one, or None if there is none.
pub(super) fn cycle(count: usize, edges: &[(u32, u32)]) -> Option<Vec<u32>> {
    let mut is_left = vec![true; count];
    topological(count, edges).iter().for_each(|&node| is_left[node as usize] = false);
    // Each node that is left has a predecessor that is left, so going back from one leads into a cycle.
    let mut source_of = vec![None; count];
    for &(source, target) in edges {
        if is_left[source as usize] && is_left[target as usize] {
            source_of[target as usize] = Some(source);
        }
    }
    let start = (0..count as u32).find(|&node| is_left[node as usize])?;
    let (mut path, mut place_of) = (vec![start], vec![None; count]);
    loop {
        let node = *path.last()?;
        if let Some(place) = place_of[node as usize] {
            let mut cycle: Vec<u32> = path.split_off(place);
            cycle.reverse();
            return Some(cycle);
        }
        place_of[node as usize] = Some(path.len() - 1);
        path.push(source_of[node as usize]?);
    }
}

/// Returns for each pair of nodes whether a path leads from the first to the second, which is true for a node
/// and itself. The graph has no cycles: of a node of a cycle, or behind one, a path may be missed.
///
/// Each pass over the edges answers for 64 first nodes, so that any number of pairs takes bounded time.
pub(super) fn is_before(count: usize, edges: &[(u32, u32)], pairs: &[(u32, u32)]) -> Vec<bool> {
    let mut places = vec![u32::MAX; count];
    topological(count, edges).iter().zip(0..).for_each(|(&node, place)| places[node as usize] = place);
    // When an edge is followed, all edges into its source have been.
    let mut edges = edges.to_vec();
    edges.sort_unstable_by_key(|&(source, _)| places[source as usize]);
    let mut sorted: Vec<usize> = (0..pairs.len()).collect();
    sorted.sort_unstable_by_key(|&pair| pairs[pair].0);
    let groups: Vec<&[usize]> = sorted.chunk_by(|&a, &b| pairs[a].0 == pairs[b].0).collect();
    let (mut is_before, mut marks) = (vec![false; pairs.len()], vec![0_u64; count]);
    for groups in groups.chunks(64) {
        marks.fill(0);
        groups.iter().enumerate().for_each(|(bit, group)| marks[pairs[group[0]].0 as usize] |= 1 << bit);
        edges.iter().for_each(|&(source, target)| marks[target as usize] |= marks[source as usize]);
        for (bit, group) in groups.iter().enumerate() {
            group.iter().for_each(|&pair| is_before[pair] = marks[pairs[pair].1 as usize] >> bit & 1 == 1);
        }
    }
    is_before
}
