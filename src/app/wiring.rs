//! Connections from output port to input port. The files have them in parts, one for each graphlet port on
//! the way; here the parts are joined.

use std::collections::HashMap;

use super::fault::{Place, Warning, list, quoted};
use super::forms::{Map, Object, ParamsForm, PortForm};
use super::parts::{Connection, End};
use super::ports::Mode;
use super::tree::{Content, Tree};
use crate::error::Result;

/// The most parts of connections.
const PARTS_MAX: usize = 1 << 18;
/// The largest `fifo-size`.
const FIFO_SIZE_MAX: u32 = 1 << 20;

/// A port of any component of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Socket {
    member: usize,
    is_input: bool,
    port: u32,
    index: Option<u32>,
}

/// A part of a connection.
struct Part {
    target: Socket,
    params: ParamsForm,
    place: Place,
}

/// Which side of a connection a name is on.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Source,
    Target,
}

/// Returns all connections, sorted by their input ports.
pub(super) fn connections(tree: &Tree, warnings: &mut Vec<Warning>) -> Result<Vec<Connection>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut from: HashMap<Socket, Vec<usize>> = HashMap::new();
    let mut into: HashMap<Socket, usize> = HashMap::new();
    for member in 0..tree.members.len() {
        add_parts(tree, member, &mut parts, &mut from, &mut into)?;
    }
    let mut found = Vec::new();
    let is_source = |socket: &&Socket| !socket.is_input && matches!(tree.members[socket.member].content, Content::Node(..));
    let mut sources: Vec<Socket> = from.keys().filter(is_source).copied().collect();
    sources.sort();
    for source in sources {
        // Each socket is the target of one part at most, so that each is met once.
        let mut open: Vec<(Socket, ParamsForm)> = vec![(source, ParamsForm::default())];
        while let Some((socket, params)) = open.pop() {
            for &part in from.get(&socket).into_iter().flatten() {
                let Part { target, params: own, place } = &parts[part];
                let params = merged(&params, own);
                match (end(tree, source), end(tree, *target)) {
                    (Some(source), Some(target)) => found.push(connection(source, target, &params, place)?),
                    _ => open.push((*target, params)),
                }
            }
        }
    }
    found.sort_by_key(|connection: &Connection| connection.target);
    check_bindings(tree, &found, warnings);
    Ok(found)
}

fn end(tree: &Tree, socket: Socket) -> Option<End> {
    match tree.members[socket.member].content {
        Content::Node(_, component) => Some(End { component, port: socket.port, index: socket.index }),
        _ => None,
    }
}

fn add_parts(
    tree: &Tree,
    member: usize,
    parts: &mut Vec<Part>,
    from: &mut HashMap<Socket, Vec<usize>>,
    into: &mut HashMap<Socket, usize>,
) -> Result<()> {
    let file = &tree.members[member].file;
    for (number, form) in tree.members[member].connections().iter().enumerate() {
        let start = Place::new(file, format!("connections[{number}]"));
        let source = socket(tree, member, &form.src, Side::Source, &start.at(".src"))?;
        for (name, params) in form.dests.iter() {
            let place = start.at(format_args!(".dests.{name}"));
            let target = socket(tree, member, name, Side::Target, &place)?;
            let params = form.params.as_ref().map_or_else(|| (**params).clone(), |common| merged(common, params));
            if let Some(first) = into.insert(target, parts.len()) {
                let first = &parts[first].place;
                return Err(place.fault(format_args!("the port {} has a source already, at {first}", quoted(name))));
            }
            from.entry(source).or_default().push(parts.len());
            parts.push(Part { target, params, place });
            if parts.len() > PARTS_MAX {
                return Err(start.fault(format_args!("the application has more than {PARTS_MAX} connections")));
            }
        }
    }
    Ok(())
}

/// Finds the port of a name: `PORT` of the component itself, or `component.PORT`, and `PORT[i]` of an array.
fn socket(tree: &Tree, member: usize, name: &str, side: Side, place: &Place) -> Result<Socket> {
    let (path, index) = match name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        Some((path, index)) => match index.parse::<u32>() {
            Ok(index) => (path, Some(index)),
            Err(_) => return Err(place.fault(format_args!("{} is no position in an array port", quoted(index)))),
        },
        None => (name, None),
    };
    let (member, is_own, port) = match path.rsplit_once('.') {
        None => (member, true, path),
        Some((component, port)) => {
            let Some(found) = tree.find(member, component) else {
                let known = list(sorted(tree.members[member].children.keys()));
                return Err(place.fault(format_args!("there is no component {}; there are {known}", quoted(component))));
            };
            (found, false, port)
        }
    };
    // Inside of a graphlet, its input port is a source.
    let is_input = (side == Side::Source) == is_own;
    let what = if is_input { "input" } else { "output" };
    let Some(ports) = tree.members[member].ports(is_input) else {
        return Err(place.fault(format_args!("{} has no component: write `component.PORT`", quoted(name))));
    };
    let Some(number) = ports.keys().position(|known| known == port) else {
        let of = if is_own { "the graphlet".to_owned() } else { quoted(&tree.members[member].name) };
        let known = list(ports.keys());
        return Err(place.fault(format_args!("{of} has no {what} port {}; it has {known}", quoted(port))));
    };
    check_index(ports, number, index, name, place)?;
    Ok(Socket { member, is_input, port: number as u32, index })
}

fn check_index(ports: &Map<Object<PortForm>>, number: usize, index: Option<u32>, name: &str, place: &Place) -> Result<()> {
    match (ports.0[number].1.array, index) {
        (Some(count), Some(index)) if index >= count => {
            Err(place.fault(format_args!("{} is out of range: the array port has {count}, counted from 0", quoted(name))))
        }
        (Some(_), None) => Err(place.fault(format_args!("{} is an array port: name one of it, as {name}[0]", quoted(name)))),
        (None, Some(_)) => Err(place.fault(format_args!("{}: the port is no array", quoted(name)))),
        _ => Ok(()),
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort();
    names
}

/// Returns parameters of which `near`, which is nearer to the input port, comes first.
fn merged(far: &ParamsForm, near: &ParamsForm) -> ParamsForm {
    ParamsForm {
        fifo_size: near.fifo_size.or(far.fifo_size),
        mode: near.mode.or(far.mode),
        reuse: near.reuse.or(far.reuse),
        indirect: near.indirect.or(far.indirect),
        data_offset: near.data_offset.or(far.data_offset),
    }
}

fn connection(source: End, target: End, params: &ParamsForm, place: &Place) -> Result<Connection> {
    let mode = params.mode.unwrap_or_default();
    let reuse = params.reuse.unwrap_or(false);
    if reuse && mode != Mode::Mailbox {
        return Err(place.at(".reuse").fault("`reuse` needs \"mode\": \"mailbox\""));
    }
    if let Some(size) = params.fifo_size {
        let at = place.at(".fifo-size");
        if size == 0 || size > FIFO_SIZE_MAX {
            return Err(at.fault(format_args!("a capacity of {size}: a capacity is from 1 to {FIFO_SIZE_MAX}")));
        }
        if mode == Mode::Singleton && size != 1 {
            return Err(at.fault(format_args!("a singleton has one slot: let its `fifo-size` be 1, not {size}")));
        }
    }
    Ok(Connection {
        source,
        target,
        mode,
        fifo_size: params.fifo_size,
        reuse,
        is_indirect: params.indirect.unwrap_or(false),
        data_offset: params.data_offset,
        place: place.clone(),
    })
}

/// Warns of input ports that must be connected, and are not; and of ends of different types.
fn check_bindings(tree: &Tree, connections: &[Connection], warnings: &mut Vec<Warning>) {
    let bound: std::collections::HashSet<(u32, u32)> =
        connections.iter().map(|connection| (connection.target.component.0, connection.target.port)).collect();
    for (component, number) in tree.components.iter().zip(0..) {
        for (port, at) in component.inputs.iter().zip(0..) {
            if port.binding_required && !bound.contains(&(number, at)) {
                let text = format!(
                    "the input port {} must be connected, and is not",
                    quoted(&format!("{}.{}", component.name, port.name))
                );
                warnings.push(Warning::new(&component.place, text));
            }
        }
    }
    for connection in connections {
        let source = &tree.components[connection.source.component.index()].outputs[connection.source.port as usize];
        let target = &tree.components[connection.target.component.index()].inputs[connection.target.port as usize];
        if let (Some(sent), Some(received)) = (&source.kind, &target.kind)
            && sent != received
        {
            let text = format!("the output port has the type {}, and the input port has {}", quoted(sent), quoted(received));
            warnings.push(Warning::new(&connection.place, text));
        }
    }
}
