//! Application descriptions: reading, refusals and their places, and plans.

mod files;
mod hostile;
mod mistakes;
mod planning;
mod ports;
mod running;
mod samples;
mod simulating;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anabranch::app::{App, Epoch, StmSchedule};
use serde_json::{Value, json};

/// A description in memory, which a test changes.
#[derive(Clone)]
pub(crate) struct Case(BTreeMap<String, Vec<u8>>);

impl Case {
    /// An application with a graphlet `top` of two nodes on the CPU, `a` and `b`, each of two passes. `a.OUT`
    /// is connected to `b.IN`. They are in phases 1 and 2 of the epoch `e`.
    pub(crate) fn new() -> Self {
        let mut case = Self(BTreeMap::new());
        case.set("x.app.json", app());
        case.set(
            "T.graphlet.json",
            json!({
                "name": "T",
                "subcomponents": {"a": {"componentType": "N.node.json"}, "b": {"componentType": "N.node.json"}},
                "connections": [{"src": "a.OUT", "dests": {"b.IN": {}}}]
            }),
        );
        case.set(
            "N.node.json",
            json!({
                "name": "N",
                "inputPorts": {"IN": {"type": "int"}, "MORE": {"type": "int", "array": 2}},
                "outputPorts": {"OUT": {"type": "int"}},
                "passes": [
                    {"name": "SETUP", "processorTypes": ["CPU"]},
                    {"name": "TEARDOWN", "processorTypes": ["CPU"]}
                ]
            }),
        );
        case.set_text("c.yaml", "p.top_a_pass_0: 1000\np.top_a_pass_1: 1000\np.top_b_pass_0: 1000\np.top_b_pass_1: 1000\n");
        case
    }

    pub(crate) fn set(&mut self, file: &str, form: Value) {
        self.set_text(file, form.to_string());
    }

    pub(crate) fn set_text(&mut self, file: &str, text: impl AsRef<[u8]>) {
        self.0.insert(file.into(), text.as_ref().to_vec());
    }

    /// Changes a file in place.
    pub(crate) fn edit(&mut self, file: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut form: Value = serde_json::from_slice(&self.0[file]).unwrap();
        change(&mut form);
        self.set(file, form);
        self
    }

    /// Sets the rows of the epoch.
    pub(crate) fn rows(&mut self, rows: Value) -> &mut Self {
        self.edit("x.app.json", |app| epoch(app)["passes"] = rows)
    }

    pub(crate) fn open(&self) -> anabranch::Result<App> {
        App::read_with("x.app.json", |path: &Path| {
            let file = path.to_str().and_then(|path| self.0.get(path.trim_start_matches("./")));
            file.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    /// The message of a description that is refused.
    pub(crate) fn fault(&self) -> String {
        let error = self.open().unwrap_err();
        assert!(error.is_invalid_graph(), "{error}");
        error.to_string()
    }
}

/// The epoch of the application.
pub(crate) fn epoch(app: &mut Value) -> &mut Value {
    &mut app["stmSchedules"]["s"]["hyperepochs"]["h"]["epochs"]["e"]
}

fn app() -> Value {
    json!({
        "name": "X",
        "subcomponents": {"top": {"componentType": "T.graphlet.json"}},
        "processes": {"p": {"subcomponents": ["top"], "runOn": "m"}},
        "states": {"RUN": {"stmScheduleKey": "s", "default": true}},
        "stmSchedules": {"s": {
            "wcet": "c.yaml",
            "hyperepochs": {"h": {
                "period": 1_000_000,
                "resources": {"m.CPU0": [], "m.CPU1": [], "m.dGPU": []},
                "epochs": {"e": {"passes": [[], ["top.a"], ["top.b"]]}}
            }}
        }}
    })
}

/// The only epoch of the only schedule.
pub(crate) fn only(app: &App) -> &Epoch {
    let [StmSchedule { hyperepochs, .. }] = app.schedules() else { panic!("one schedule") };
    &hyperepochs[0].epochs[0]
}

/// The passes before a pass, in the form of the samples' table.
pub(crate) fn before<'a>(app: &'a App, epoch: &Epoch, pass: &str) -> Vec<&'a str> {
    let passes = epoch.predecessors(app.pass(pass).unwrap());
    passes.into_iter().map(|pass| &*app.passes()[pass.index()].name).collect()
}

pub(crate) fn sample(name: &str) -> App {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/app/systems");
    App::open(root.join(format!("{name}.app.json"))).unwrap()
}
