//! The parts of a description: components, passes and the connections between them, flat and numbered.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::fault::Place;
use super::ports::Mode;
use super::processor::Processor;
use crate::name::Name;

/// A component with passes, by its position in [`App::components`](super::App::components).
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let pass = &app.passes()[0];
/// let component = &app.components()[pass.component.index()];
/// assert_eq!(component.name, "decode");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComponentId(pub(super) u32);

/// A pass, by its position in [`App::passes`](super::App::passes).
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let pass = app.pass("detect.PROCESS");
/// assert!(pass.is_some_and(|pass| app.passes()[pass.index()].name == "detect.PROCESS"));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PassId(pub(super) u32);

impl ComponentId {
    /// Returns the position of the component.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl PassId {
    /// Returns the position of the pass.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A component with passes: what the files call a node.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let decode = &app.components()[0];
/// assert_eq!(decode.name, "decode");
/// assert_eq!(decode.kind, "Decode");
/// assert_eq!(decode.machine.as_deref(), Some("machine0"));
/// assert_eq!((decode.inputs.len(), decode.outputs.len(), decode.passes().len()), (0, 1, 1));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Component {
    /// Its path from the application, with dots: `top.filter`.
    pub name: Name,
    /// The name in its file: `demo::Filter`.
    pub kind: Name,
    /// The process that it runs in.
    pub process: Option<Name>,
    /// The machine that the process runs on.
    pub machine: Option<Name>,
    /// Its input ports. The components of one file share them.
    pub inputs: Arc<[PortShape]>,
    /// Its output ports.
    pub outputs: Arc<[PortShape]>,
    pub(super) passes: Range<u32>,
    pub(super) file: Arc<Path>,
    /// Where it is a subcomponent of another one.
    pub(super) place: Place,
}

impl Component {
    /// Returns its passes, in the order of its file.
    pub fn passes(&self) -> impl DoubleEndedIterator<Item = PassId> + ExactSizeIterator + use<> {
        self.passes.clone().map(PassId)
    }

    /// Returns the file that describes it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the pass that receives messages.
    pub(super) fn first(&self) -> PassId {
        PassId(self.passes.start)
    }

    /// Returns the pass that sends messages.
    pub(super) fn last(&self) -> PassId {
        PassId(self.passes.end - 1)
    }
}

/// A port of a component.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let port = &app.components()[0].outputs[0];
/// assert_eq!(port.name, "FRAME");
/// assert_eq!((port.kind.as_deref(), port.bytes), (Some("Frame"), Some(6_220_800)));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortShape {
    /// Its name.
    pub name: Name,
    /// The type of its messages, if the file gives it.
    pub kind: Option<Name>,
    /// How many ports an array port has; none if it is no array.
    pub array: Option<u32>,
    /// Whether it must be connected.
    pub binding_required: bool,
    /// The size of a message; none if the file does not give it.
    pub bytes: Option<u64>,
}

/// A pass of a component.
///
/// ```
/// use anabranch::app::Processor;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let on_gpu = app.passes().iter().filter(|pass| pass.processor == Processor::Gpu);
/// let names: Vec<_> = on_gpu.map(|pass| &pass.name).collect();
/// assert_eq!(names, ["detect.PROCESS"]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pass {
    /// Its path from the application: `top.filter.PROCESS`.
    pub name: Name,
    /// Its component.
    pub component: ComponentId,
    /// Its position in the component, from 0.
    pub number: u32,
    /// The processor that it runs on.
    pub processor: Processor,
    /// The passes of the same component that come before it, each once.
    pub after: Vec<PassId>,
    /// True if the file gives no dependencies, so that the pass comes after the one before it.
    pub is_implicit: bool,
}

/// A port of a component: its position among the inputs or the outputs, and in an array port.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let source = app.connections()[0].source;
/// let component = &app.components()[source.component.index()];
/// assert_eq!(component.name, "decode");
/// assert_eq!(component.outputs[source.port as usize].name, "FRAME");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct End {
    /// The component.
    pub component: ComponentId,
    /// The position of the port among the inputs or the outputs of the component.
    pub port: u32,
    /// The position in an array port.
    pub index: Option<u32>,
}

/// A connection from an output port to an input port, through the ports of graphlets.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// for connection in app.connections() {
///     let [source, target] = [connection.source, connection.target].map(|end| end.component.index());
///     println!("{} -> {}", app.components()[source].name, app.components()[target].name);
/// }
/// assert_eq!(app.connections().iter().filter(|connection| connection.is_direct()).count(), 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connection {
    /// The output port.
    pub source: End,
    /// The input port.
    pub target: End,
    /// What the queue does if it is full.
    pub mode: Mode,
    /// The capacity in the file; none if the file does not give it.
    pub fifo_size: Option<u32>,
    /// Whether a receive that finds no message returns the last one again.
    pub reuse: bool,
    /// Whether data flows without a dependency.
    pub is_indirect: bool,
    /// The offset that the file stamps on the messages.
    pub data_offset: Option<i64>,
    /// Where the part of the connection at the input port stands.
    pub(super) place: Place,
}

impl Connection {
    /// Returns true if the consumer depends on the producer.
    pub fn is_direct(&self) -> bool {
        !self.is_indirect
    }
}

/// A process of the application.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let process = &app.processes()[0];
/// assert_eq!(process.name, "worker");
/// assert_eq!(process.run_on.as_deref(), Some("machine0"));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Process {
    /// Its name.
    pub name: Name,
    /// The machine that it runs on.
    pub run_on: Option<Name>,
}
