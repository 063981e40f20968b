//! The memory of scopes, counted by the allocator: random programs keep their bounds. In a binary of its own,
//! because the allocator counts the whole process.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "it/dice.rs"]
mod dice;
#[path = "it/scope/kernels.rs"]
mod kernels;
#[path = "it/scope/program.rs"]
#[allow(dead_code)]
mod program;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch::scope::Streaming;
use anabranch::{Executor, Graph, Plan, inputs};
use dice::Dice;
use program::{Action, Program, Reach};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

/// The most bytes of a run besides tiles: its nodes, steps and futures.
const BESIDE: usize = 48 << 10;

fn draw(dice: &mut Dice) -> Program<1> {
    let shape = [100_000 + dice.below(50_000)];
    let mut actions = vec![Action::Fill { seed: 1 }, Action::Load { seed: 2 }];
    let mut stores = 2;
    for _ in 0..1 + dice.below(4) {
        let from = dice.below(stores);
        let action = match dice.below(6) {
            0 => Action::Update { from, seed: 3 },
            1 => Action::Fold { from, halo: false },
            2 => Action::Load { seed: 4 },
            3 => Action::Map { from: vec![(from, Reach::Own), (dice.below(stores), Reach::Shifted([-2]))], to: None },
            _ => Action::Map { from: vec![(from, Reach::Halo([dice.below(3)], [dice.below(3)]))], to: None },
        };
        stores += usize::from(!matches!(action, Action::Fold { .. }));
        actions.push(action);
    }
    Program { shape, tile: None, actions, kept: [0, 0] }
}

fn compile(program: &Program<1>, streaming: Streaming) -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    let ((one, other, scalars), _) = program.scope(&mut g, streaming);
    g.output("one", &one);
    g.output("other", &other);
    g.output("scalars", &scalars);
    g.compile()
}

#[test]
fn what_is_allocated_is_at_most_what_the_plan_says() {
    let exec = Executor::builder().workers(2).build().unwrap();
    let rounds = std::env::var("SCOPE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(12);
    for seed in 0..rounds {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let program = draw(&mut dice);
        let streaming = Streaming::relaxed().over_decompose_factor(2 + dice.below(20)).workers(2);
        let text = compile(&program, streaming.memory_max(0)).unwrap_err().to_string();
        let least: u64 = text.rsplit_once("allow ").unwrap().1.parse().unwrap();
        let whole = compile(&program, streaming).unwrap().scope("program").unwrap().peak_bytes().max(least);
        for bound in [least, least + (whole - least) / 2, whole] {
            let plan = compile(&program, streaming.memory_max(bound)).unwrap();
            let scope = plan.scope("program").unwrap();
            assert!(scope.peak_bytes() <= bound, "{scope}");
            let before = NOW.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            let outputs = futures::executor::block_on(exec.run(&plan, inputs! {})).unwrap();
            let peak = PEAK.load(Ordering::Relaxed) - before;
            assert!(peak <= bound as usize + BESIDE, "{peak} bytes were allocated, the bound is {bound}: {program:?}\n{scope}");
            drop(outputs);
        }
    }
}
