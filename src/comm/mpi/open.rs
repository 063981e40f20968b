//! The start of MPI in this process, once, and of its worlds.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::calls::{COMMS, Calls, CommsAt, Failed, Handle, Memory};
use super::comm::Comm;
use super::engine::Mpi as Engine;
use super::library::{self, Visit};
use super::path::{Buffers, Path, Start, Step};
use super::progress::Progress;
use crate::comm::control::{Control, Host, Invitation, Waits};
use crate::comm::engine;
use crate::comm::health::Health;
use crate::comm::op::Place;
use crate::comm::world::World;
use crate::error::{Error, Kind, Result, WorldFault};
use crate::sync::{Mutex, lock};

/// The default deadline of a world.
const DEADLINE: Duration = Duration::from_secs(10);
/// The shortest one: beats are sent twenty times as often.
const DEADLINE_MIN: Duration = Duration::from_millis(100);

/// MPI can be started once in a process.
static STARTED: OnceLock<Result<Box<dyn Started>>> = OnceLock::new();

/// Settings of a world over MPI.
///
/// # Examples
/// A world whose ranks learn within two seconds that another one has died or hangs:
/// ```no_run
/// use std::time::Duration;
///
/// use anabranch::comm::Mpi;
///
/// let world = Mpi::new().deadline(Duration::from_secs(2)).world()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mpi {
    deadline: Duration,
}

impl Default for Mpi {
    fn default() -> Self {
        Self::new()
    }
}

impl Mpi {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self { deadline: DEADLINE }
    }

    /// Sets the time within which a rank that has died, hangs or has left ends what other ranks wait for: at
    /// least 100 ms, by default 10 s. All ranks give the same.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the world of this process; see [`World::mpi`].
    ///
    /// # Errors
    /// As [`World::mpi`]; if the deadline is too short.
    pub fn world(&self) -> Result<World> {
        if self.deadline < DEADLINE_MIN {
            let got = self.deadline.as_millis() as usize;
            return Err(Kind::Setting { what: "the deadline of a world, in ms,", must: "at least 100", got }.into());
        }
        engine(self.deadline).map(World::of)
    }
}

/// Returns the engine of the next world of this process.
pub(super) fn engine(deadline: Duration) -> Result<Box<dyn engine::Engine>> {
    STARTED.get_or_init(|| start(deadline).map_err(fault)).as_ref().map_err(Error::clone)?.engine(deadline)
}

impl World {
    /// Returns the world of this process among those that `mpirun` has started: all processes of
    /// `MPI_COMM_WORLD`. Without `mpirun`, it has one rank. [`Mpi`] has settings.
    ///
    /// The library is loaded at run time: Open MPI, or one with the ABI of MPICH. It is that of the launcher
    /// that started the process. The first call starts MPI, unless the program has done so: then it needs
    /// `MPI_THREAD_SERIALIZED`, and must not call MPI itself while a world exists. Errors of
    /// `MPI_COMM_WORLD` are returned from then on. At its end, the process waits for those of all ranks;
    /// operations that other threads start then are errors.
    /// Each further call returns a further world of the same ranks, as [`World::duplicate`] does. All ranks
    /// must call these equally often, in the same order. It waits until all ranks have called it.
    ///
    /// # Errors
    /// If there is no library, MPI cannot be started, or not all ranks come within the deadline.
    pub fn mpi() -> Result<Self> {
        Mpi::new().world()
    }
}

fn fault(why: String) -> Error {
    Kind::Mpi { why }.into()
}

/// The most worlds that this rank has left, and whose communicators are not freed, before it waits to make a
/// further one. MPICH has about 2,000 communicators, and fails without a reason behind the last.
const UNFREED_MAX: usize = 64;
/// The longest such wait: other ranks may keep these worlds.
const UNFREED_WAIT: Duration = Duration::from_millis(100);

/// MPI in this process, for handles of any type.
trait Started: Send + Sync {
    fn engine(&self, deadline: Duration) -> Result<Box<dyn engine::Engine>>;
    /// Ends MPI, if that is safe.
    fn finalize(&self);
}

struct Process<H> {
    progress: Arc<Progress<H>>,
    control: Arc<Control>,
    place: Place,
    /// The largest tag of a message.
    tag_max: u32,
    /// Held while a world is made: all ranks make them one after the other.
    making: Mutex<()>,
}

impl<H: Handle> Started for Process<H> {
    fn engine(&self, deadline: Duration) -> Result<Box<dyn engine::Engine>> {
        self.progress.path.check_open().map_err(|ended| fault(ended.to_string()))?;
        let _making = lock(&self.making);
        // The control connection tells when communicators can be freed, and may be late on busy cores.
        let begin = Instant::now();
        while self.control.unfreed() > UNFREED_MAX && begin.elapsed() < UNFREED_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (health, waits) = (Arc::<Health>::default(), Arc::<Waits>::default());
        let world = self.control.add(health.clone(), waits.clone(), deadline);
        match self.duplicates(&health, deadline) {
            Ok(handles) => {
                let progress = self.progress.clone();
                self.control.note_made(world, Box::new(move || handles.into_iter().for_each(|handle| progress.free(handle))));
                let comm = Arc::new(Comm::new(handles, world, self.control.clone(), health));
                Ok(Box::new(Engine::new(self.progress.clone(), comm, waits, (self.place, self.tag_max), deadline)))
            }
            Err(error) => {
                let (rank, why) = (self.place.rank, format!("its world was not made: {error:#}"));
                self.control.break_by(world, WorldFault::Abandoned { rank, why });
                self.control.leave(world);
                self.control.rest(world, None);
                Err(error)
            }
        }
    }

    fn finalize(&self) {
        let path = &self.progress.path;
        path.note_end();
        // MPI waits for all ranks at its end, so that it never comes if one of them does not end it.
        if self.control.finish(|| path.close_if_idle()) {
            path.end();
        }
    }
}

impl<H: Handle> Process<H> {
    /// Returns the communicators of a world, once all ranks have asked for them. All ranks make as many for
    /// each world, in the same order, so those of different worlds never meet: what this rank gives up goes
    /// on behind, and what it gives up at once is asked for, too.
    fn duplicates(&self, health: &Health, deadline: Duration) -> Result<[H; COMMS]> {
        let check_whole = || health.fault().map_or(Ok(()), |fault| Err(Kind::World(fault).into()));
        // A rank that has died or ended fails all further worlds, on all ranks.
        if matches!(health.fault(), Some(WorldFault::Died { .. } | WorldFault::Left { .. })) {
            check_whole()?;
        }
        let mut comms = Box::new([self.progress.path.world; COMMS]);
        let into = CommsAt::of(&mut comms);
        let start: Start<H> = Box::new(move |_, _| Ok(Step::Copies { into, made: 0, request: None }));
        let request = self.progress.request(start, Buffers::of(comms, 0));
        let Some(ended) = self.progress.wait(&request, |waited| waited > deadline || health.fault().is_some()) else {
            check_whole()?;
            return Err(fault(not_all_within(deadline)));
        };
        let text = |failed: Failed| fault(failed.to_string());
        let comms = *ended.map_err(text)?.others::<Box<[H; COMMS]>>();
        comms.into_iter().try_for_each(|comm| self.progress.path.with(|calls| calls.return_errors(comm))).map_err(text)?;
        Ok(comms)
    }
}

fn not_all_within(deadline: Duration) -> String {
    format!("not all ranks have asked for this world within {deadline:?}")
}

fn start(deadline: Duration) -> Result<Box<dyn Started>, String> {
    library::load(Launch { deadline })
}

/// Starts MPI with a library that was found.
struct Launch {
    deadline: Duration,
}

impl Visit for Launch {
    type Output = Result<Box<dyn Started>, String>;

    fn visit<H: Handle>(self, calls: Calls<H>) -> Self::Output {
        let text = |failed: Failed| failed.to_string();
        // Open MPI reports errors inside of collectives of any communicator to that of all, and would abort.
        let begun = calls.init().and_then(|()| calls.return_errors(calls.constants.world)).and_then(|()| calls.tag_max());
        let tag_max = match begun {
            Ok(tag_max) => tag_max,
            Err(failed) => {
                // MPI may have threads, so its library stays.
                std::mem::forget(calls);
                return Err(text(failed));
            }
        };
        // SAFETY: the function does not panic, and may be called at the end of the process.
        unsafe { atexit(finalize) };
        let progress = Progress::start(Path::new(calls)).map_err(|error| error.to_string())?;
        let place = progress.path.with(|calls| calls.place(calls.constants.world)).map_err(text)?;
        library::check_size(place.1)?;
        let (control, place) = connect(&progress, place, self.deadline)?;
        Ok(Box::new(Process { progress, control, place, tag_max, making: Mutex::new(()) }))
    }
}

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> std::ffi::c_int;
}

extern "C" fn finalize() {
    if let Some(Ok(started)) = STARTED.get() {
        started.finalize();
    }
}

/// Makes the control connection: rank 0 tells all others over MPI where it listens.
fn connect<H: Handle>(
    progress: &Arc<Progress<H>>,
    (rank, size): (u32, u32),
    deadline: Duration,
) -> Result<(Arc<Control>, Place), String> {
    let comm = progress.path.world;
    let links = match (rank, size) {
        (_, 1) => Ok(Vec::new()),
        (0, _) => {
            let (host, invitation) = Host::new().map_err(|error| error.to_string())?;
            let bytes = postcard::to_stdvec(&invitation).map_err(|error| error.to_string())?;
            share(progress, comm, bytes, deadline)?;
            host.links(size, deadline)
        }
        _ => {
            let bytes = share(progress, comm, Vec::new(), deadline)?;
            let invitation: Invitation = postcard::from_bytes(&bytes).map_err(|error| error.to_string())?;
            invitation.link(rank).map(|link| vec![link])
        }
    };
    let started = links.and_then(|links| Control::start((rank, size), links));
    let control = started.map_err(|error| format!("the control connection between the ranks failed: {error}"))?;
    Ok((control, Place { rank, size }))
}

/// The most bytes of an invitation.
const INVITATION_MAX: usize = 4096;

/// Returns the bytes that rank 0 gives.
fn share<H: Handle>(progress: &Arc<Progress<H>>, comm: H, mut given: Vec<u8>, deadline: Duration) -> Result<Vec<u8>, String> {
    given.resize(INVITATION_MAX, 0);
    let at = Memory::of(&mut given);
    // SAFETY: the buffers keep the bytes.
    let start = move |calls: &Calls<H>| unsafe { calls.broadcast(at, 0, comm) };
    let request = progress.request(Box::new(move |calls, _| Ok(Step::Request(start(calls)?))), Buffers::of(given, 0));
    let ended = progress.wait(&request, |waited| waited > deadline).ok_or_else(|| not_all_within(deadline))?;
    Ok(ended.map_err(|failed| failed.to_string())?.others())
}
