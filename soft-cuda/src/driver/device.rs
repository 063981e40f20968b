//! One device: its objects, its faults, its counters. It shares only the numbers of clock components with
//! other devices.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::callback::SerialCaller;
use super::calls::Calls;
use super::clock::{Clock, HostClock};
use super::context::Context;
use super::event::Event;
use super::executable::Executable;
use super::fault::Faults;
use super::function::{Function, Module};
use super::graph::Graph;
use super::log::Log;
use super::memory::Memory;
use super::stream::Stream;
use super::table::{Handle, Kind, Table};
use super::violation::Violations;
use super::{lock, read, write};
use crate::code::Outcome;
use crate::wire::{Counters, DEVICES, ViolationKind};

/// A device. It is created when it is first named, and lives as long as the process.
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) context: Context,
    pub(crate) calls: Calls,
    pub(crate) log: Log,
    pub(crate) faults: Faults,
    pub(crate) violations: Violations,
    pub(crate) memory: Memory,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) executables: Table<Executable>,
    pub(crate) serial_caller: SerialCaller,
    pub(crate) numbers: Numbers,
    pub(crate) switches: Switches,
    /// The clocks that came with written values, by the address of the word, until the client declares that
    /// the host has seen them.
    pub(crate) words: Mutex<HashMap<usize, Arc<Clock>>>,
    pub(crate) attributes: Mutex<HashMap<u32, i32>>,
    /// Devices whose work has met share one host clock; see [`link`].
    host: RwLock<Arc<HostClock>>,
    default_stream: Mutex<Option<Arc<Stream>>>,
    /// Destroyed streams whose threads may still have work.
    retired: Mutex<Vec<Arc<Stream>>>,
}

/// Counters and serial numbers.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) threads: AtomicU64,
    pub(crate) issued: AtomicU64,
    pub(crate) executed: AtomicU64,
    pub(crate) pageable_copies: AtomicU64,
    pub(crate) last_node: AtomicU64,
    /// The number of the last stream of this context.
    pub(crate) last_stream: AtomicU64,
    /// The number of the last event of this context.
    pub(crate) last_event: AtomicU64,
}

/// Switches. A switch guards no other data, so all accesses are Relaxed.
pub(crate) struct Switches {
    pub(crate) tracks_races: AtomicBool,
    pub(crate) words_inform_host: AtomicBool,
    pub(crate) is_absent: AtomicBool,
}

static ALL: [OnceLock<Device>; DEVICES as usize] = [const { OnceLock::new() }; DEVICES as usize];

/// Returns the device with that number, if the number is valid.
pub(crate) fn known(ordinal: u32) -> Option<&'static Device> {
    ALL.get(ordinal as usize).map(|device| device.get_or_init(|| Device::new(ordinal)))
}

/// Returns the devices that were named so far.
pub(crate) fn created() -> impl Iterator<Item = &'static Device> {
    ALL.iter().filter_map(OnceLock::get)
}

impl Device {
    fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            context: Context::default(),
            calls: Calls::new(),
            log: Log::default(),
            faults: Faults::default(),
            violations: Violations::default(),
            memory: Memory::new(),
            streams: Table::new(Kind::Stream, ordinal),
            events: Table::new(Kind::Event, ordinal),
            modules: Table::new(Kind::Module, ordinal),
            functions: Table::new(Kind::Function, ordinal),
            graphs: Table::new(Kind::Graph, ordinal),
            executables: Table::new(Kind::Executable, ordinal),
            serial_caller: SerialCaller::default(),
            numbers: Numbers::default(),
            switches: Switches {
                tracks_races: AtomicBool::new(true),
                words_inform_host: AtomicBool::new(true),
                is_absent: AtomicBool::new(false),
            },
            words: Mutex::default(),
            attributes: Mutex::default(),
            host: RwLock::new(Arc::new(HostClock::new())),
            default_stream: Mutex::default(),
            retired: Mutex::default(),
        }
    }

    pub(crate) fn tracks_races(&self) -> bool {
        // ORDERING: Relaxed: a switch that guards no other data.
        self.switches.tracks_races.load(Ordering::Relaxed)
    }

    pub(crate) fn host(&self) -> Arc<HostClock> {
        read(&self.host).clone()
    }

    pub(crate) fn retain(&'static self) -> Outcome<Handle> {
        let _guard = lock(&self.context.changing);
        // ORDERING: SeqCst costs nothing here. `changing` is held, which orders all changes of the number.
        let retains = self.context.retains.load(Ordering::SeqCst);
        if retains == 0 {
            self.context.begin();
            // The clock of the earlier context is void, and so are its links to other devices.
            // ORDERING: Relaxed: the numbers only have to differ within the context, and `changing` is held.
            *write(&self.host) = Arc::new(HostClock::new());
            self.numbers.last_stream.store(0, Ordering::Relaxed);
            self.numbers.last_event.store(0, Ordering::Relaxed);
        }
        self.context.check()?;
        self.context.retains.store(retains + 1, Ordering::SeqCst);
        Ok(self.context.handle(self.ordinal))
    }

    /// Undoes one retain. The last release tears the context down. Returns false if there was no retain.
    pub(crate) fn release(&'static self) -> bool {
        let _guard = lock(&self.context.changing);
        // ORDERING: SeqCst costs nothing here. `changing` is held, which orders all changes of the number.
        let retains = self.context.retains.load(Ordering::SeqCst);
        match retains {
            0 => return false,
            1 => self.tear_down(),
            _ => {}
        }
        self.context.retains.store(retains - 1, Ordering::SeqCst);
        true
    }

    /// Ends every stream and forgets every object. Work that can end is done; stalled streams are released,
    /// and their remaining work is not executed.
    fn tear_down(&self) {
        self.context.let_go();
        let mut streams = self.streams.clear();
        streams.extend(lock(&self.default_stream).take());
        streams.append(&mut lock(&self.retired));
        streams.iter().for_each(|stream| stream.close());
        streams.iter().for_each(|stream| stream.join());
        self.serial_caller.stop();
        self.events.clear();
        self.executables.clear();
        self.graphs.clear();
        self.functions.clear();
        self.modules.clear();
        let has_failed = self.context.check().is_err();
        for allocation in self.memory.clear() {
            // After a fatal error no memory can be freed, so leaks are not reported.
            if !has_failed {
                let text = format!("{} bytes of {:?} memory were never freed", allocation.len(), allocation.residence);
                self.violations.add(ViolationKind::Leak, text);
            }
        }
        lock(&self.words).clear();
        self.context.end();
    }

    pub(crate) fn default_stream(&'static self) -> Arc<Stream> {
        lock(&self.default_stream).get_or_insert_with(|| Arc::new(Stream::new(self, 0))).clone()
    }

    /// Returns every stream that can have work, except the destroyed ones.
    pub(crate) fn live_streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = self.streams.all();
        streams.extend(lock(&self.default_stream).clone());
        streams
    }

    /// Keeps a destroyed stream until its thread has ended.
    pub(crate) fn retire(&self, stream: Arc<Stream>) {
        stream.close();
        let mut retired = lock(&self.retired);
        retired.retain(|stream| !stream.has_ended());
        retired.push(stream);
    }

    pub(crate) fn counters(&self) -> Counters {
        let tally = self.memory.tally();
        // ORDERING: Relaxed: statistics that guard no other data.
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counters {
            retains: number(&self.context.retains),
            streams: self.streams.len(),
            events: self.events.len(),
            modules: self.modules.len(),
            graphs: self.graphs.len(),
            executable_graphs: self.executables.len(),
            allocations: tally.allocations,
            bytes: tally.bytes,
            peak_bytes: tally.peak_bytes,
            pinned_allocations: tally.pinned_allocations,
            pinned_bytes: tally.pinned_bytes,
            threads: number(&self.numbers.threads),
            issued: number(&self.numbers.issued),
            executed: number(&self.numbers.executed),
            pageable_copies: number(&self.numbers.pageable_copies),
            stalled: self.faults.stalls.stopped(),
        }
    }
}

/// Gives two devices one host clock, because their work has met in a copy or an event: from now on, what the
/// host has seen of one device it has seen of the other.
pub(crate) fn link(left: &Device, right: &Device) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if Arc::ptr_eq(&left.host(), &right.host()) {
        return;
    }
    let _guard = lock(&ONE_AT_A_TIME);
    let (left, right) = (left.host(), right.host());
    if Arc::ptr_eq(&left, &right) {
        return;
    }
    let mut clock = left.snapshot();
    clock.join(&right.snapshot());
    let shared = Arc::new(HostClock::from_clock(clock));
    for device in created() {
        let host = device.host();
        if Arc::ptr_eq(&host, &left) || Arc::ptr_eq(&host, &right) {
            *write(&device.host) = shared.clone();
        }
    }
}
