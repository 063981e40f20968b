//! Scopes of arrays and operations: which operations stream together, and in how much memory.

use std::fmt::Write;

use anabranch::tiles::{Group, Outline, Rule, Streamed, Window};
use serde::Serialize;

use crate::Failure;
use crate::args::{StreamArgs, StreamFormat};
use crate::files::{self, Looks};

/// The rules that a report compares.
const RULES: [(&str, Rule); 3] = [("exact", Rule::Exact), ("in_order", Rule::InOrder), ("legate", Rule::Legate)];

pub(crate) fn text(args: &StreamArgs, format: StreamFormat) -> Result<String, Failure> {
    let outlines = outlines(args)?;
    let stream = |outline: &Outline, rule: Rule| {
        let name = outline.name().map(|name| format!("{name}: ")).unwrap_or_default();
        let invalid = |error| Failure::Invalid(format!("{}: {name}{error}", args.file.display()));
        outline.stream_within(rule, args.memory_max).map_err(invalid)
    };
    match format {
        StreamFormat::Text => {
            let mut out = String::new();
            for outline in &outlines {
                let gap = if out.is_empty() { "" } else { "\n" };
                if let Some(name) = outline.name() {
                    // Writing to a string cannot fail.
                    let _ = writeln!(out, "{gap}{name}");
                }
                let _ = write!(out, "{}", stream(outline, Rule::Exact)?);
                // A limit of memory applies only to our rule.
                write_legate(&outline.stream(Rule::Legate).map_err(|error| Failure::Invalid(error.to_string()))?, &mut out);
            }
            Ok(out)
        }
        StreamFormat::Json => {
            let forms = outlines.iter().map(|outline| {
                let of = |(name, rule): (&'static str, Rule)| {
                    let bounded = if rule == Rule::Exact { stream(outline, rule)? } else { unbounded(outline, rule)? };
                    Ok((name, form(&bounded)))
                };
                let rules = RULES.into_iter().map(of).collect::<Result<_, Failure>>()?;
                Ok(CaseForm { id: outline.name().map(ToString::to_string), rules })
            });
            let forms: Vec<CaseForm> = forms.collect::<Result<_, Failure>>()?;
            Ok(serde_json::to_string_pretty(&forms).expect("its maps have strings as keys") + "\n")
        }
        StreamFormat::Svg => match &outlines[..] {
            [outline] => Ok(stream(outline, Rule::Exact)?.to_svg()),
            _ => Err(Failure::Usage(format!(
                "{}: a picture shows one case: choose one of {} by --case",
                args.file.display(),
                names(&outlines)
            ))),
        },
    }
}

fn unbounded(outline: &Outline, rule: Rule) -> Result<Streamed, Failure> {
    outline.stream(rule).map_err(|error| Failure::Invalid(error.to_string()))
}

/// Reads the requested outlines.
fn outlines(args: &StreamArgs) -> Result<Vec<Outline>, Failure> {
    let text = files::text(&args.file)?;
    let outlines = Outline::from_json(&text).map_err(|error| {
        let hint = match Looks::of(&text) {
            Some(Looks::Graph) => "; this looks like a graph, which `anabranch plan` reads",
            Some(Looks::Description) => "; this looks like an application description, which `anabranch pipeline` reads",
            Some(Looks::Plan) | None => "",
        };
        Failure::Invalid(format!("{}: {error}{hint}", args.file.display()))
    })?;
    let Some(case) = &args.case else { return Ok(outlines) };
    let known = names(&outlines);
    let found: Vec<Outline> =
        outlines.into_iter().filter(|outline| outline.name().is_some_and(|name| **name == **case)).collect();
    match found.is_empty() {
        true => Err(Failure::Usage(format!("{}: there is no case '{case}'; there are {known}", args.file.display()))),
        false => Ok(found),
    }
}

fn names(outlines: &[Outline]) -> String {
    let names: Vec<String> = outlines.iter().filter_map(Outline::name).map(|name| format!("'{name}'")).collect();
    if names.is_empty() { "none with an `id`".into() } else { names.join(", ") }
}

/// Writes the result of Legate's checker: whether it streams, or where it cuts and why.
fn write_legate(streamed: &Streamed, out: &mut String) {
    let verdict = if streamed.is_one() { "streams".to_owned() } else { format!("{} groups", streamed.groups().len()) };
    let _ = writeln!(out, "{:<13}{verdict}", "by Legate");
    for reason in streamed.groups().iter().flat_map(|group| group.cut()) {
        let _ = writeln!(out, "  {:<11}before {}:", "cut", reason.op());
        reason.to_string().split("; ").for_each(|piece| _ = writeln!(out, "  {:<11}  {piece}", ""));
    }
}

#[derive(Serialize)]
struct CaseForm {
    id: Option<String>,
    #[serde(flatten)]
    rules: std::collections::BTreeMap<&'static str, RuleForm>,
}

#[derive(Serialize)]
struct RuleForm {
    streams: bool,
    /// Null by Legate's rule: the cases that it accepts may be wrong with this memory.
    bytes: Option<u64>,
    unstreamed_bytes: u64,
    groups: Vec<GroupForm>,
}

#[derive(Serialize)]
struct GroupForm {
    ops: Vec<String>,
    skews: Vec<u64>,
    batches: u64,
    steps: u64,
    /// Null by Legate's rule.
    windows: Option<Vec<WindowForm>>,
    cut: Vec<String>,
}

#[derive(Serialize)]
struct WindowForm {
    store: String,
    /// Null stands for the whole store.
    tiles: Option<u64>,
    tile_bytes: u64,
    store_bytes: u64,
}

fn form(streamed: &Streamed) -> RuleForm {
    let (outline, is_exact) = (streamed.outline(), streamed.rule() != Rule::Legate);
    let window = |window: &Window| WindowForm {
        store: outline.store_name(window.store).to_string(),
        tiles: window.tiles,
        tile_bytes: window.tile_bytes,
        store_bytes: window.store_bytes,
    };
    let group = |group: &Group| GroupForm {
        ops: group.ops().map(|op| outline.name_of(op).to_string()).collect(),
        skews: group.skews().to_vec(),
        batches: group.batches(),
        steps: group.steps(),
        windows: is_exact.then(|| group.windows().iter().map(window).collect()),
        cut: group.cut().iter().map(ToString::to_string).collect(),
    };
    RuleForm {
        streams: streamed.is_one(),
        bytes: is_exact.then(|| streamed.bytes(1)),
        unstreamed_bytes: streamed.unstreamed_bytes(),
        groups: streamed.groups().iter().map(group).collect(),
    }
}
