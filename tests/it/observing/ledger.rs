//! An observer that checks all calls: work that begins ends once, and bodies are nested.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread::ThreadId;

use anabranch::exec::{Observer, Origin, RunId, Work, WorkKind, WorkSpan};
use anabranch::graph::NodeId;

/// The identity of a piece of work until its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Run,
    Item(u64),
    Node(u64, NodeId),
    Operation(String, u32),
}

fn key(work: &Work) -> (RunId, Key) {
    let key = match work.kind {
        WorkKind::Run { .. } | WorkKind::Flow => Key::Run,
        WorkKind::Item { .. } => Key::Item(work.item),
        WorkKind::Node { id, .. } => Key::Node(work.item, id),
        WorkKind::Operation { number } => Key::Operation(work.name.to_string(), number),
        _ => unreachable!("there are no other kinds"),
    };
    (work.run, key)
}

#[derive(Default)]
pub(super) struct Ledger(Mutex<Accounts>);

#[derive(Default)]
struct Accounts {
    /// Work that has begun and not ended, with the number of its polls.
    open: HashMap<(RunId, Key), u32>,
    /// The work that each thread is inside of.
    inside: HashMap<ThreadId, Vec<(RunId, Key)>>,
    ended: Vec<WorkSpan>,
    faults: Vec<String>,
}

impl Ledger {
    /// Returns all work that has ended. Panics after a wrong call, or if something has not ended.
    pub(super) fn close(&self) -> Vec<WorkSpan> {
        let mut accounts = self.0.lock().unwrap();
        assert!(accounts.faults.is_empty(), "{:?}", accounts.faults);
        assert!(accounts.open.is_empty(), "{:?}", accounts.open);
        assert!(accounts.inside.values().all(Vec::is_empty), "{:?}", accounts.inside);
        std::mem::take(&mut accounts.ended)
    }

    /// Returns whether all that has begun has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().unwrap().open.is_empty()
    }

    /// Returns whether an operation of this name has begun and not ended.
    pub(super) fn has_begun(&self, name: &str) -> bool {
        self.0.lock().unwrap().open.keys().any(|(_, key)| matches!(key, Key::Operation(of, _) if of == name))
    }

    fn note(&self, note: impl FnOnce(&mut Accounts) -> Result<(), String>) {
        let mut accounts = self.0.lock().unwrap();
        let fault = note(&mut accounts).err();
        accounts.faults.extend(fault);
    }
}

impl Observer for Ledger {
    fn begins(&self, work: &Work, _: Option<&Origin>) {
        self.note(|accounts| match accounts.open.insert(key(work), 0) {
            None => Ok(()),
            Some(_) => Err(format!("{work:?} begins twice")),
        });
    }

    fn enters(&self, work: &Work) {
        self.note(|accounts| {
            accounts.inside.entry(std::thread::current().id()).or_default().push(key(work));
            *accounts.open.get_mut(&key(work)).ok_or_else(|| format!("{work:?} is entered and has not begun"))? += 1;
            Ok(())
        });
    }

    fn leaves(&self, work: &Work) {
        self.note(|accounts| match accounts.inside.entry(std::thread::current().id()).or_default().pop() {
            Some(inside) if inside == key(work) => Ok(()),
            inside => Err(format!("{work:?} is left inside of {inside:?}")),
        });
    }

    fn ended(&self, span: &WorkSpan) {
        self.note(|accounts| {
            let polls = accounts.open.remove(&key(&span.work)).ok_or_else(|| format!("{:?} has not begun", span.work))?;
            let is_right = polls == span.polls && span.ready <= span.start && span.start <= span.end;
            accounts.ended.push(span.clone());
            if is_right { Ok(()) } else { Err(format!("{span:?} after {polls} polls")) }
        });
    }
}
