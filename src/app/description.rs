//! The description of an application: read from its files, checked, and flat.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::build::{self, Parts};
use super::fault::{Place, Warning, list, normal, quoted};
use super::files::{Files, from_disk};
use super::forms::AppForm;
use super::names::Names;
use super::order::cycle;
use super::parts::{Component, ComponentId, Connection, Pass, PassId, Process};
use super::schedule::StmSchedule;
use super::tree::Tree;
use super::wiring;
use crate::error::{Kind, Result};
use crate::name::Name;

/// An application description of the Compute Graph Framework: components, passes, connections, and schedules
/// with their epochs.
///
/// Numbers and names follow the files. Everything is checked when it is read, so an `App` has no mistake that
/// this page names.
///
/// ```
/// use anabranch::app::App;
///
/// # let file = "src/app/sample/camera.app.json";
/// let app = App::open(file)?;
/// assert_eq!(app.name(), "camera");
/// let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// let (written, better) = (app.written(epoch)?.phasing, app.auto(epoch, 3)?.phasing);
/// println!("{better}");
/// assert_eq!((written.period_us(), better.period_us()), (7_100.0, 5_100.0));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct App {
    name: Name,
    components: Vec<Component>,
    passes: Vec<Pass>,
    connections: Vec<Connection>,
    processes: Vec<Process>,
    states: Vec<AppState>,
    schedules: Vec<StmSchedule>,
    warnings: Vec<Warning>,
    file: Arc<Path>,
}

/// A state of an application: it says which schedule runs.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let default = app.states().iter().find(|state| state.is_default);
/// assert!(default.is_some_and(|state| state.name == "RUN" && state.schedule == "run"));
/// assert_eq!(app.schedule(Some("RUN"))?.name, app.schedule(None)?.name);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AppState {
    /// Its name.
    pub name: Name,
    /// The name of its schedule.
    pub schedule: Name,
    /// True if the application starts in it.
    pub is_default: bool,
}

impl App {
    /// Reads a description, and the files that it names, from disk.
    ///
    /// # Errors
    ///
    /// Names the file and the place in it, as a path through objects and lists. Fails if a file cannot be
    /// read, is no regular file, is larger than 16 MiB or is malformed; if a name is unknown or used twice;
    /// if a graphlet contains itself; if the phases of an epoch, or its connections, contradict each other.
    /// `docs/app-json.md` has the list. [`Error::is_invalid_graph`](crate::Error::is_invalid_graph) is true
    /// for all of these.
    pub fn open(file: impl AsRef<Path>) -> Result<Self> {
        Self::read_with(file, from_disk)
    }

    /// Reads a description, with `read` for the bytes of each file. `read` gets `file` first, and then paths
    /// relative to the folders of the files that name them.
    ///
    /// # Errors
    ///
    /// As for [`App::open`].
    ///
    /// # Examples
    /// ```
    /// use std::io;
    /// use std::path::Path;
    ///
    /// use anabranch::app::App;
    ///
    /// let files = |path: &Path| match path.to_str() {
    ///     Some("small.app.json") => Ok(br#"{"name": "Small", "subcomponents": {"a": {"componentType": "A.node.json"}}}"#.to_vec()),
    ///     Some("A.node.json") => Ok(br#"{"name": "A", "passes": [{"name": "RUN", "processorTypes": ["CPU"]}]}"#.to_vec()),
    ///     _ => Err(io::ErrorKind::NotFound.into()),
    /// };
    /// let app = App::read_with("small.app.json", files)?;
    /// assert_eq!(app.passes()[0].name, "a.RUN");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn read_with(file: impl AsRef<Path>, mut read: impl FnMut(&Path) -> io::Result<Vec<u8>>) -> Result<Self> {
        let mut files = Files::new(&mut read);
        match Self::read(normal(file.as_ref()).into(), &mut files) {
            Ok(mut app) => {
                app.warnings.extend(files.into_warnings());
                Ok(app)
            }
            Err(fault) => Err(match files.into_warnings().first() {
                Some(warning) => Kind::Misspelt { fault, warning: warning.to_string() }.into(),
                None => fault,
            }),
        }
    }

    fn read(file: Arc<Path>, files: &mut Files<'_>) -> Result<Self> {
        let form = Rc::new(files.app(&file)?);
        let start = Place::new(&file, "");
        let mut warnings = Vec::new();
        let mut tree = Tree::new(&file, form.clone(), files)?;
        let processes = processes(&form, &mut tree, &start)?;
        let connections = wiring::connections(&tree, &mut warnings)?;
        let external = form.stm_external_runnables.keys().collect();
        let names = Names::new(&tree, form.processes.keys().collect(), external);
        let parts = Parts { components: &tree.components, passes: &tree.passes, connections: &connections, names: &names };
        let schedules = build::schedules(&form.stm_schedules, &parts, &start, files, &mut warnings)?;
        check_cycles(&tree, &connections, &schedules)?;
        let states = states(&form, &start)?;
        let (name, Tree { components, passes, .. }) = (form.name.clone().into(), tree);
        Ok(Self { name, components, passes, connections, processes, states, schedules, warnings, file })
    }

    /// Returns the name of the application.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its components with passes. Those of graphlets stand behind those around them.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Returns the passes of all components, component by component.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Returns the connections between components, sorted by their input ports.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Returns the processes, in the order of the file.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Returns the states, in the order of the file.
    pub fn states(&self) -> &[AppState] {
        &self.states
    }

    /// Returns all schedules, in the order of the file.
    pub fn schedules(&self) -> &[StmSchedule] {
        &self.schedules
    }

    /// Returns the warnings: each is about something that is allowed, and may not be meant.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the component of a path.
    pub fn component(&self, name: &str) -> Option<ComponentId> {
        let place = self.components.iter().position(|component| component.name == *name);
        place.map(|place| ComponentId(place as u32))
    }

    /// Returns the pass of a path.
    pub fn pass(&self, name: &str) -> Option<PassId> {
        let place = self.passes.iter().position(|pass| pass.name == *name);
        place.map(|place| PassId(place as u32))
    }

    /// Returns the schedule of a state; without a name, that of the default state. If there is only one
    /// state, or none and one schedule, no default is needed.
    ///
    /// # Errors
    ///
    /// Fails if there is no such state, or if no state is the default and there are several.
    pub fn schedule(&self, state: Option<&str>) -> Result<&StmSchedule> {
        let place = Place::new(&self.file, "states");
        let known = || list(self.states.iter().map(|state| &*state.name));
        let by_name = |name: &Name| self.schedules.iter().find(|schedule| schedule.name == *name);
        let found = match state {
            Some(name) => {
                let found = self.states.iter().find(|state| state.name == *name);
                Some(
                    found
                        .ok_or_else(|| place.fault(format_args!("there is no state {}; there are {}", quoted(name), known())))?,
                )
            }
            None => match (&self.states[..], &self.schedules[..]) {
                ([only], _) => Some(only),
                ([], [only]) => return Ok(only),
                ([], []) => return Err(Place::new(&self.file, "").fault("the application has no `stmSchedules`")),
                ([], _) => return Err(place.fault("the application has several `stmSchedules`, and no state chooses one")),
                (states, _) => states.iter().find(|state| state.is_default),
            },
        };
        let found = found.and_then(|state| by_name(&state.schedule));
        found.ok_or_else(|| place.fault(format_args!("no state is the default: name one of {}", known())))
    }
}

/// Reads the processes, and gives each component the process that names it, or a graphlet around it.
fn processes(form: &AppForm, tree: &mut Tree, start: &Place) -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    // The place of the name that gave a component its process, and the length of that name.
    let mut given: Vec<Option<(usize, Place)>> = vec![None; tree.components.len()];
    for (name, form) in form.processes.iter() {
        let process = Process { name: name.to_owned().into(), run_on: form.run_on.clone().map(Name::from) };
        for (index, path) in form.subcomponents.iter().enumerate() {
            let place = start.at(format_args!("processes.{name}.subcomponents[{index}]"));
            let Some(member) = tree.find(0, path) else {
                let known = list(tree.below_names(&tree.members[0]).iter().map(String::as_str)).to_string();
                return Err(place.fault(format_args!("there is no component {}; there are {known}", quoted(path))));
            };
            for component in tree.below(member) {
                let component = component.index();
                match &given[component] {
                    Some((length, first)) if *length == path.len() => {
                        return Err(place.fault(format_args!("{} is in a process already, at {first}", quoted(path))));
                    }
                    Some((length, _)) if *length > path.len() => continue,
                    _ => {}
                }
                given[component] = Some((path.len(), place.clone()));
                tree.components[component].process = Some(process.name.clone());
                tree.components[component].machine = process.run_on.clone();
            }
        }
        processes.push(process);
    }
    Ok(processes)
}

fn states(form: &AppForm, start: &Place) -> Result<Vec<AppState>> {
    let mut states: Vec<AppState> = Vec::new();
    for (name, state) in form.states.iter() {
        let place = start.at(format_args!("states.{name}"));
        if form.stm_schedules.get(&state.stm_schedule_key).is_none() {
            let (key, known) = (quoted(&state.stm_schedule_key), list(form.stm_schedules.keys()));
            return Err(place.at(".stmScheduleKey").fault(format_args!("there is no schedule {key}; there are {known}")));
        }
        if let Some(first) = states.iter().find(|known| known.is_default && state.is_default) {
            return Err(place.at(".default").fault(format_args!("{} is the default state already", quoted(&first.name))));
        }
        let schedule = state.stm_schedule_key.clone().into();
        states.push(AppState { name: name.to_owned().into(), schedule, is_default: state.is_default });
    }
    Ok(states)
}

/// Fails if components that no schedule runs depend on each other in a cycle. Those of a schedule are
/// checked with its phases.
fn check_cycles(tree: &Tree, connections: &[Connection], schedules: &[StmSchedule]) -> Result<()> {
    let mut is_planned = vec![false; tree.components.len()];
    let epochs = schedules.iter().flat_map(|schedule| &schedule.hyperepochs).flat_map(|hyperepoch| &hyperepoch.epochs);
    for runnable in epochs.flat_map(|epoch| &epoch.runnables) {
        is_planned[tree.passes[runnable.pass.index()].component.index()] = true;
    }
    let is_left = |connection: &&Connection| {
        let [source, target] = [connection.source, connection.target].map(|end| is_planned[end.component.index()]);
        !source && !target && connection.is_direct() && connection.data_offset.is_none()
    };
    let left: Vec<&Connection> = connections.iter().filter(is_left).collect();
    let edges: Vec<(u32, u32)> =
        left.iter().map(|connection| (connection.source.component.0, connection.target.component.0)).collect();
    let Some(cycle) = cycle(tree.components.len(), &edges) else { return Ok(()) };
    let ends = (cycle[0], cycle[1]);
    let closing = edges.iter().position(|edge| *edge == ends).expect("a cycle has an edge from its first node");
    let mut names: Vec<&str> = cycle.iter().map(|&number| &*tree.components[number as usize].name).collect();
    let more = if names.len() > 16 { " -> ..." } else { "" };
    names.truncate(16);
    Err(left[closing].place.fault(format_args!(
        "the components {}{more} wait for each other in a cycle: mark one of the connections `indirect`",
        names.join(" -> ")
    )))
}
