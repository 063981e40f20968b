//! The resources of a hyperepoch. All CPUs of a machine are one engine with as many lanes, and so are the
//! other engines of one kind; a single engine runs one runnable at a time. What a process has are streams,
//! whose names end with an engine, and mutexes.

use std::collections::HashMap;

use super::fault::{Place, Warning, quoted};
use super::forms::Map;
use super::names::Names;
use super::parts::{Component, PassId};
use super::processor::Processor;
use super::schedule::{Engine, EngineId, EngineStream, Mutex};
use crate::error::Result;
use crate::name::Name;

#[derive(Default)]
pub(super) struct Resources {
    pub(super) engines: Vec<Engine>,
    pub(super) mutexes: Vec<Mutex>,
    pub(super) streams: Vec<EngineStream>,
    /// The engines that the file gives to passes.
    given: HashMap<PassId, EngineId>,
}

impl Resources {
    pub(super) fn read(form: &Map<Vec<String>>, names: &Names<'_>, start: &Place, warnings: &mut Vec<Warning>) -> Result<Self> {
        let mut resources = Self::default();
        for (specifier, passes) in form.iter() {
            let place = start.at(format_args!(".{specifier}"));
            let Some((scope, name)) = specifier.split_once('.').filter(|(scope, name)| !scope.is_empty() && !name.is_empty())
            else {
                return Err(place.fault(format_args!(
                    "{} is no resource: write `machine.NAME`, `process.NAME:ENGINE` for a stream, or `process.NAME` for a mutex",
                    quoted(specifier)
                )));
            };
            let passes = names.all_passes(passes, &place)?;
            match (names.is_process(scope), name.split_once(':')) {
                (_, Some((_, engine))) => {
                    let (process, engine) = (scope.to_owned().into(), engine.to_owned().into());
                    resources.streams.push(EngineStream { name: specifier.to_owned().into(), process, engine });
                }
                (true, None) => resources.mutexes.push(Mutex { name: specifier.to_owned().into(), passes }),
                (false, None) => resources.add_engine((scope, name), &passes, names, &place, warnings),
            }
        }
        for engine in &mut resources.engines {
            if engine.lanes > 1 || engine.stem == "CPU" {
                engine.name = format!("{}.{}", engine.machine, engine.stem).into();
            }
        }
        Ok(resources)
    }

    fn add_engine(
        &mut self,
        (machine, name): (&str, &str),
        passes: &[PassId],
        names: &Names<'_>,
        place: &Place,
        warnings: &mut Vec<Warning>,
    ) {
        let stem = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "" => name,
            stem => stem,
        };
        let known = self.engines.iter().position(|engine| *engine.machine == *machine && *engine.stem == *stem);
        let number = known.unwrap_or(self.engines.len());
        if known.is_some() {
            self.engines[number].lanes += 1;
        } else {
            let (machine, stem) = (Name::from(machine.to_owned()), Name::from(stem.to_owned()));
            self.engines.push(Engine { name: format!("{machine}.{name}").into(), lanes: 1, machine, stem });
        }
        if let (Some(first), true) = (passes.first(), stem == "CPU" || known.is_some()) {
            let (first, others) = (quoted(names.name_of(*first)), passes.len() - 1);
            let given = match others {
                0 => format!("{first} is"),
                _ => format!("{first} and {others} more are"),
            };
            let text = format!("{given} given to this lane, but may run on any of {machine}.{stem}");
            warnings.push(Warning::new(place, text));
        }
        self.given.extend(passes.iter().map(|&pass| (pass, EngineId(number as u32))));
    }

    /// Returns the engine for a part of a pass that needs this processor. If the file has none, one with a
    /// single lane is assumed.
    pub(super) fn engine(
        &mut self,
        component: &Component,
        pass: PassId,
        processor: Processor,
        place: &Place,
        warnings: &mut Vec<Warning>,
    ) -> EngineId {
        if let Some(&given) = self.given.get(&pass).filter(|given| self.engines[given.index()].is_for(processor)) {
            return given;
        }
        let machine = component.machine.as_ref();
        let is_there = |engine: &Engine| engine.is_for(processor) && machine.is_none_or(|machine| *machine == engine.machine);
        let is_streamed = |engine: &Engine| {
            let mut streams = self.streams.iter().filter(|stream| component.process.as_ref() == Some(&stream.process));
            streams.any(|stream| engine.name.ends_with(&*stream.engine) || *engine.stem == *stream.engine)
        };
        let found = self.engines.iter().position(|engine| is_there(engine) && is_streamed(engine));
        let found = found.or_else(|| self.engines.iter().position(is_there));
        let number = found.unwrap_or_else(|| {
            let machine = machine.cloned().unwrap_or_else(|| "machine".into());
            let name = Name::from(format!("{machine}.{processor}"));
            let text = format!(
                "the hyperepoch has no resource for {processor} of {}: one with a single lane is assumed",
                quoted(&machine)
            );
            warnings.push(Warning::new(place, text));
            self.engines.push(Engine { name, lanes: 1, machine, stem: processor.name().into() });
            self.engines.len() - 1
        });
        EngineId(number as u32)
    }
}
