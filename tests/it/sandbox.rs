//! Programs that forbid system calls for themselves after they have made their executors.

use std::task::Poll;

use anabranch::graph::Each;
use anabranch::{Executor, Graph, Inputs, Plan, Value};

use crate::support::{alone, block_on, executor, plan};

/// Installs a seccomp filter that refuses `membarrier`: for this thread and those that it starts, or for
/// `all` of the process.
fn forbid_membarrier(all: bool) {
    let code = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // Load the number of the system call; is it membarrier? refuse, or else allow.
        code(0x20, 0, 0, 0),
        code(0x15, 0, 1, libc::SYS_membarrier as u32),
        code(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        code(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let flags = if all { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: it takes plain integers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its filter live until the call returns.
    assert_eq!(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }, 0);
}

/// A plan with work for several workers, and a node that is watched.
fn wide() -> Plan {
    let mut g = Graph::new();
    let one = g.task("one", (), || 1u64);
    let wide: Vec<Value<u64>> = (0..50).map(|n| g.task(n.to_string(), &one, |one: &u64| *one)).collect();
    let pause = g.future("pause", &one, async |_| {
        smol::future::yield_now().await;
        Ok(())
    });
    let sum = g.task("sum", (&wide[..], &pause), |wide: Each<u64>, _: &()| wide.iter().sum::<u64>());
    g.output("sum", &sum);
    plan(&g)
}

/// Runs the plan on each executor in turn, so that the workers of the others go to sleep, and watches nodes
/// of runs that have started and of runs that have not.
fn use_all(execs: &[Executor], plan: &Plan) {
    for round in 0..100 {
        for exec in execs {
            let mut run = exec.run(plan, Inputs::new());
            let node = run.node("pause");
            let polled = if round % 2 == 0 { crate::support::poll_once(&mut run) } else { Poll::Pending };
            block_on(node).unwrap();
            block_on(run.node("pause")).unwrap();
            let outputs = if let Poll::Ready(outputs) = polled { outputs } else { block_on(run) };
            assert_eq!(*outputs.unwrap().take::<u64>("sum").unwrap(), 50);
        }
    }
}

fn goes_on_without_membarrier(all: bool) {
    let (execs, plan) = ([0, 1, 2, 8].map(executor), wide());
    use_all(&execs, &plan);
    forbid_membarrier(all);
    use_all(&execs, &plan);
    let later = [0, 1, 2, 8].map(executor);
    use_all(&later, &plan);
    for exec in execs.into_iter().chain(later) {
        block_on(exec.shutdown()).unwrap();
    }
}

// Seen to fail with an assertion that membarrier is allowed for ever: the workers die, and the next run
// hangs.
#[test]
fn a_program_may_forbid_membarrier_after_it_has_made_executors() {
    alone("sandbox::a_program_may_forbid_membarrier_after_it_has_made_executors", || goes_on_without_membarrier(true));
}

// Seen to fail with the same assertion: the caller panics.
#[test]
fn a_thread_that_may_not_use_membarrier_can_watch_nodes() {
    alone("sandbox::a_thread_that_may_not_use_membarrier_can_watch_nodes", || goes_on_without_membarrier(false));
}
