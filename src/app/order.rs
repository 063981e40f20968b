//! Orders and circles of small graphs.

/// The predecessors and successors of each of `count` nodes.
fn successors(count: usize, edges: &[(u32, u32)]) -> (Vec<Vec<u32>>, Vec<u32>) {
    let (mut next, mut before) = (vec![Vec::new(); count], vec![0_u32; count]);
    for &(source, target) in edges {
        next[source as usize].push(target);
        before[target as usize] += 1;
    }
    (next, before)
}

/// Returns the nodes in an order in which the source of each edge comes before its target. Nodes of a circle,
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

/// Returns the nodes of a circle, from one of them to the same one, or None if there is none.
pub(super) fn circle(count: usize, edges: &[(u32, u32)]) -> Option<Vec<u32>> {
    let mut is_left = vec![true; count];
    topological(count, edges).iter().for_each(|&node| is_left[node as usize] = false);
    // Each node that is left has a predecessor that is left, so going back from one leads into a circle.
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
            let mut circle: Vec<u32> = path.split_off(place);
            circle.reverse();
            return Some(circle);
        }
        place_of[node as usize] = Some(path.len() - 1);
        path.push(source_of[node as usize]?);
    }
}

/// Returns all nodes that can be reached from a node, itself included.
pub(super) fn reachable(count: usize, edges: &[(u32, u32)], from: u32) -> Vec<bool> {
    let (next, _) = successors(count, edges);
    let (mut is_reached, mut open) = (vec![false; count], vec![from]);
    is_reached[from as usize] = true;
    while let Some(node) = open.pop() {
        for &target in &next[node as usize] {
            if !std::mem::replace(&mut is_reached[target as usize], true) {
                open.push(target);
            }
        }
    }
    is_reached
}
