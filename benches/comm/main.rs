//! Question: what does an exchange between ranks cost here, compared with the same exchange in C over MPI?
//!
//! Method: two ranks on one machine. A ping-pong awaits each message; an all-reduce is awaited before the
//! next one. A figure is the time of one message, or of one all-reduce. Each round starts both programs, one
//! after the other; the tables give the median over the rounds.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Flow};
use futures::executor::block_on;

/// Set for the processes that are ranks.
const RANK: &str = "ANABRANCH_BENCH_RANK";
const SIZES: [(usize, usize); 6] =
    [(8, 20_000), (1 << 10, 20_000), (1 << 16, 3_000), (1 << 20, 400), (1 << 24, 20), (1 << 26, 8)];

fn main() {
    if std::env::var_os(RANK).is_some() {
        return rank();
    }
    let rounds = 3;
    for (name, compiler, arguments) in
        [("openmpi", "mpicc.openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("mpich", "mpicc.mpich", &[])]
    {
        let raw = std::env::temp_dir().join(format!("anabranch-bench-comm-{name}"));
        let built = Command::new(compiler).args(["-O2", "-o"]).arg(&raw).arg("benches/comm/raw.c").status();
        if !built.is_ok_and(|status| status.success()) {
            println!("skipped: no {compiler}");
            continue;
        }
        let (mut theirs, mut ours) = (Figures::new(), Figures::new());
        for _ in 0..rounds {
            let sizes = SIZES.iter().flat_map(|(bytes, rounds)| [bytes.to_string(), rounds.to_string()]);
            launch(name, arguments, &raw, &sizes.collect::<Vec<_>>(), &mut theirs);
            launch(name, arguments, &std::env::current_exe().unwrap(), &[], &mut ours);
        }
        println!("| {name} | bytes | C, us | ours, us | ratio | difference, us |\n|---|---:|---:|---:|---:|---:|");
        for (key, theirs) in &theirs {
            let (theirs, ours) = (median(theirs) / 1e3, median(&ours[key]) / 1e3);
            println!("| {} | {} | {theirs:.2} | {ours:.2} | {:.2} | {:.2} |", key.0, key.1, ours / theirs, ours - theirs);
        }
    }
}

type Figures = BTreeMap<(String, usize), Vec<f64>>;

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn launch(name: &str, arguments: &[&str], program: &Path, more: &[String], figures: &mut Figures) {
    let mut command = Command::new(PathBuf::from(format!("mpirun.{name}")));
    command.args(arguments).env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env(RANK, "1");
    let output = command.args(["-n", "2"]).arg(program).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split(' ');
        let (name, bytes, ns) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        figures.entry((name.to_owned(), bytes.parse().unwrap())).or_default().push(ns.parse().unwrap());
    }
}

fn rank() {
    let world = World::mpi().unwrap();
    for (bytes, rounds) in SIZES {
        let exec = Executor::inline();
        let (world, rank) = (&world, world.rank());
        let flow = exec.flow(async |f: &Flow| {
            let other = 1 - rank;
            let out = f.value("out", vec![1.0_f64; bytes / 8]);
            let mut begin = Instant::now();
            for round in 0..rounds + rounds / 10 + 1 {
                if round == rounds / 10 + 1 {
                    f.get(&f.barrier(world, "barrier", &out)).await?;
                    begin = Instant::now();
                }
                if rank == 0 {
                    f.get(&f.send_to(world, "ping", &out, other)).await?;
                    f.get(&f.recv_from::<Vec<f64>>(world, "pong", other)).await?;
                } else {
                    f.get(&f.recv_from::<Vec<f64>>(world, "ping", other)).await?;
                    f.get(&f.send_to(world, "pong", &out, other)).await?;
                }
            }
            let ping_pong = begin.elapsed().as_secs_f64() / (2 * rounds) as f64;
            for round in 0..rounds + rounds / 10 + 1 {
                if round == rounds / 10 + 1 {
                    f.get(&f.barrier(world, "barrier", &out)).await?;
                    begin = Instant::now();
                }
                f.get(&f.all_reduce(world, "sum", &out, Sum)).await?;
            }
            Ok((ping_pong, begin.elapsed().as_secs_f64() / rounds as f64))
        });
        let (ping_pong, all_reduce) = block_on(flow).unwrap();
        if rank == 0 {
            println!("ping-pong {bytes} {:.1}\nall-reduce {bytes} {:.1}", 1e9 * ping_pong, 1e9 * all_reduce);
        }
    }
}
