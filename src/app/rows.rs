//! The rows of the epochs: which pass runs in which hyperepoch, epoch and phase.

use super::fault::{Place, Warning, quoted};
use super::forms::ScheduleForm;
use super::names::Names;
use super::parts::{Component, Pass, PassId};
use crate::error::Result;

/// The most rows of one epoch: row 0, and a row for each phase that the room `phases` allows.
const ROWS_MAX: usize = crate::phases::PHASE_MAX as usize + 1;

/// Where a pass is scheduled.
#[derive(Clone)]
pub(super) struct Placed {
    /// The positions of its hyperepoch and its epoch.
    pub(super) epoch: (usize, usize),
    pub(super) row: u32,
    /// True if the row names the pass itself, and not its component.
    pub(super) is_single: bool,
    pub(super) place: Place,
}

/// The places of all passes in one schedule, by the number of the pass.
pub(super) struct Rows(Vec<Option<Placed>>);

impl Rows {
    /// `start` is the place of the schedule.
    pub(super) fn read(
        form: &ScheduleForm,
        names: &Names<'_>,
        passes: &[Pass],
        start: &Place,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self> {
        let mut rows = Self(vec![None; passes.len()]);
        for (hyper, (name, hyperepoch)) in form.hyperepochs.iter().enumerate() {
            for (number, (epoch_name, epoch)) in hyperepoch.epochs.iter().enumerate() {
                let place = start.at(format_args!(".hyperepochs.{name}.epochs.{epoch_name}.passes"));
                if epoch.passes.0.len() > ROWS_MAX {
                    return Err(
                        place.fault(format_args!("an epoch has at most {ROWS_MAX} rows, and not {}", epoch.passes.0.len()))
                    );
                }
                for (row, entries) in epoch.passes.0.iter().enumerate() {
                    for (index, entry) in entries.iter().enumerate() {
                        let place = place.at(format_args!("[{row}][{index}]"));
                        if names.is_external(entry) {
                            let text = format!("{} is an external runnable, which is not planned", quoted(entry));
                            warnings.push(Warning::new(&place, text));
                            continue;
                        }
                        let named = names.find(entry, &place)?;
                        for pass in named.passes {
                            let (epoch, row, is_single) = ((hyper, number), row as u32, named.is_single);
                            rows.place(pass, Placed { epoch, row, is_single, place: place.clone() }, passes)?;
                        }
                    }
                }
            }
        }
        Ok(rows)
    }

    fn place(&mut self, pass: PassId, placed: Placed, passes: &[Pass]) -> Result<()> {
        if let Some(first) = &self.0[pass.index()] {
            let name = quoted(&passes[pass.index()].name);
            return Err(placed.place.fault(format_args!(
                "the pass {name} is scheduled twice, here and at {}: name each component in one row of one epoch",
                first.place
            )));
        }
        self.0[pass.index()] = Some(placed);
        Ok(())
    }

    pub(super) fn of(&self, pass: PassId) -> Option<&Placed> {
        self.0[pass.index()].as_ref()
    }

    /// Returns the first pass of a component that is scheduled, and its place.
    pub(super) fn first_of(&self, component: &Component) -> Option<(PassId, &Placed)> {
        component.passes().find_map(|pass| Some((pass, self.of(pass)?)))
    }

    /// Returns the passes of an epoch, in their order.
    pub(super) fn passes(&self, epoch: (usize, usize)) -> impl Iterator<Item = (PassId, &Placed)> {
        let all = self.0.iter().zip(0..).filter_map(|(placed, pass)| Some((PassId(pass), placed.as_ref()?)));
        all.filter(move |(_, placed)| placed.epoch == epoch)
    }
}
