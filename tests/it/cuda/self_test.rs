//! The completion that an executor chooses on a device where some do not reach the host. The result for a
//! device holds for the process, so each test has a process of its own.

use std::time::{Duration, Instant};

use anabranch::cuda::{Completion, SelfTest, TrialOutcome, self_test};
use anabranch::exec::ExecutorBuilder;
use anabranch::{Executor, HostBuffer, inputs};
use anabranch_soft_cuda::{Client, Code, Device, HostFunctions, Seen, Which};

use super::uploaded;
use crate::support::{alone, block_on, plan, until, value_of};

/// Attributes of devices: whether a stream can write words, and words of 64 bits.
const WORDS: u32 = 92;
const WORDS_64: u32 = 122;

fn device() -> Device {
    Client::beside_this_test().unwrap().next_device()
}

fn builder(device: &Device) -> ExecutorBuilder {
    Executor::builder().workers(1).cuda(&[device.ordinal() as u32])
}

fn test(device: &Device) -> SelfTest {
    self_test(device.ordinal() as u32).unwrap()
}

/// Returns the outcomes as letters: a word of 64 bits, one of 32, an event, a host function.
fn outcomes(test: &SelfTest) -> String {
    let letter = |outcome: &TrialOutcome| match outcome {
        TrialOutcome::Works(_) => 'w',
        TrialOutcome::Unsupported => 'u',
        TrialOutcome::Failed(_) => 'r',
        TrialOutcome::AfterSync => 's',
        TrialOutcome::Never => 'n',
        TrialOutcome::Unfinished => 'f',
        other => panic!("{other:?}"),
    };
    test.trials().iter().map(|trial| letter(trial.outcome())).collect()
}

/// Checks that all objects that were made are freed.
fn is_clean(device: &Device) {
    until(|| device.counters().retains == 0);
    let counters = device.counters();
    assert_eq!(device.violations(), [], "{counters:?}");
    assert_eq!((counters.streams, counters.events, counters.allocations, counters.pinned_allocations), (0, 0, 0, 0));
}

/// Runs a plan on a device, and returns the number of calls of a function of the driver meanwhile.
fn calls_of_a_run(device: &Device, call: &str) -> u64 {
    let exec = builder(device).build().unwrap();
    let before = device.calls_of(call);
    let (mut g, _, up) = uploaded("up");
    let out = g.try_kernel("down", &up, super::download);
    g.output("out", &out);
    let inputs = inputs! { "x" => vec![1.0_f32; 10] };
    drop(value_of::<HostBuffer<f32>>(block_on(exec.run(&plan(&g), inputs)), "out"));
    device.calls_of(call) - before
}

#[test]
fn a_device_as_it_should_be_signals_in_every_way() {
    alone("cuda::self_test::a_device_as_it_should_be_signals_in_every_way", || {
        let device = device();
        let test = test(&device);
        assert_eq!((outcomes(&test).as_str(), test.completion()), ("wwww", Some(Completion::Lane)), "{test}");
        is_clean(&device);
        assert!(calls_of_a_run(&device, "cuStreamWriteValue64_v2") > 0);
        let said = test.to_string();
        assert!(said.contains("| a word of 64 bits, the default | works, ") && said.lines().count() == 6, "{said}");
    });
}

#[test]
fn a_written_word_that_never_comes_is_not_taken() {
    // Seen to fail with a choice by the device's attributes alone.
    alone("cuda::self_test::a_written_word_that_never_comes_is_not_taken", || {
        let device = device();
        device.written_values(Seen::Never);
        assert!(calls_of_a_run(&device, "cuEventRecord") > 0);
        assert_eq!(device.calls_of("cuLaunchHostFunc"), 0, "the trials end with the first that works");
        assert_eq!(outcomes(&test(&device)), "nnww");
    });
}

#[test]
fn a_written_word_that_comes_after_a_wait_only_is_not_taken() {
    // Seen to fail with a wait that makes a trial a success.
    alone("cuda::self_test::a_written_word_that_comes_after_a_wait_only_is_not_taken", || {
        let device = device();
        device.written_values(Seen::AfterSync);
        assert!(calls_of_a_run(&device, "cuEventRecord") > 0);
        assert_eq!(outcomes(&test(&device)), "ssww");
        until(|| device.counters().retains == 0);
        device.event_queries(Seen::AfterSync);
        let test = test(&device);
        assert_eq!((outcomes(&test).as_str(), test.completion()), ("sssw", Some(Completion::HostFunction)));
        is_clean(&device);
    });
}

#[test]
fn a_completion_that_is_asked_for_and_does_not_work_is_an_error() {
    // Seen to fail with a choice among all completions, regardless of the request.
    alone("cuda::self_test::a_completion_that_is_asked_for_and_does_not_work_is_an_error", || {
        let device = device();
        device.host_functions(HostFunctions::Dropped);
        device.attribute(WORDS_64, 0);
        let said = |completion| builder(&device).completion(completion).build().map(drop).map_err(|error| error.to_string());
        let why = "CUDA device 0 does not tell the host by Completion::HostFunction that work is done (a host function: the call \
                   succeeded, and the end never came). These work: Completion::Lane, Completion::Event. Ask for one of them, or \
                   leave the choice to the executor";
        assert_eq!(said(Completion::HostFunction), Err(why.into()));
        assert_eq!(said(Completion::Lane), Ok(()), "32 bits are enough");
        assert_eq!(said(Completion::Event), Ok(()));
        device.attribute(WORDS, 0);
        let why = said(Completion::Lane).unwrap_err();
        let lacks = "a word of 64 bits: the device does not support it; a word of 32 bits: the device does not support it";
        assert!(why.contains(lacks) && why.contains("These work: Completion::Event."), "{why}");
        assert_eq!(outcomes(&test(&device)), "uuwn");
        is_clean(&device);
    });
}

#[test]
fn a_completion_that_the_driver_refuses_is_not_taken() {
    // Seen to fail with refusals that end the whole self-test.
    alone("cuda::self_test::a_completion_that_the_driver_refuses_is_not_taken", || {
        let device = device();
        device.fail_call("cuStreamWriteValue64_v2", 1, Code::NOT_SUPPORTED);
        device.fail_operation(Which::HostFunction, 1, Code(7_777));
        let test = test(&device);
        assert_eq!(outcomes(&test), "rwwr");
        let said = test.to_string();
        assert!(said.contains("| the CUDA driver answered CUDA_ERROR_NOT_SUPPORTED (801)"), "{said}");
        assert!(said.contains("(7777)") && test.works(Completion::Lane) && !test.works(Completion::HostFunction), "{said}");
        assert!(calls_of_a_run(&device, "cuStreamWriteValue32_v2") > 0);
    });
}

#[test]
fn a_device_that_tells_the_host_nothing_is_an_error() {
    // Seen to fail with a self-test that returns the known result.
    alone("cuda::self_test::a_device_that_tells_the_host_nothing_is_an_error", || {
        let device = device();
        device.written_values(Seen::Never);
        device.event_queries(Seen::Never);
        device.host_functions(HostFunctions::Dropped);
        let said = builder(&device).build().unwrap_err().to_string();
        assert!(
            said.starts_with("CUDA device 0 does not tell the host in any way that work is done (a word of 64 bits: "),
            "{said}"
        );
        assert!(said.ends_with("No other way works. Update the driver"), "{said}");
        let test = test(&device);
        assert_eq!((outcomes(&test).as_str(), test.completion()), ("nnnn", None));
        is_clean(&device);
        // The result holds until a self-test finds another one.
        device.clear_faults();
        assert!(builder(&device).build().is_err());
        assert_eq!(outcomes(&self_test(device.ordinal() as u32).unwrap()), "wwww");
        assert!(builder(&device).build().is_ok());
    });
}

#[test]
fn a_device_that_is_late_is_not_one_that_never_signals() {
    // Seen to fail with a single try.
    alone("cuda::self_test::a_device_that_is_late_is_not_one_that_never_signals", || {
        let device = device();
        device.delay_operation(Which::Memset, 1, Duration::from_millis(300));
        assert_eq!(outcomes(&test(&device)), "wwww");
        is_clean(&device);
    });
}

#[test]
fn a_device_that_hangs_does_not_block_the_self_test_for_ever() {
    // Seen to hang with a wait for the stream that has no bound.
    alone("cuda::self_test::a_device_that_hangs_does_not_block_the_self_test_for_ever", || {
        let device = device();
        device.stall_operation(Which::Memset, 1);
        let started = Instant::now();
        assert_eq!(outcomes(&test(&device)), "fwww");
        // It has waited for all its bounds: a second and more.
        assert!(started.elapsed() >= Duration::from_secs(1));
        device.release_stall();
        is_clean(&device);
    });
}

#[test]
fn a_device_that_is_lost_in_a_trial_is_an_error() {
    // Seen to fail with a choice by the device's attributes alone.
    alone("cuda::self_test::a_device_that_is_lost_in_a_trial_is_an_error", || {
        let device = device();
        device.fail_operation(Which::WriteValue, 1, Code::ILLEGAL_ADDRESS);
        assert!(builder(&device).build().unwrap_err().is_device_lost());
    });
}

#[test]
fn trials_are_made_once_for_a_device() {
    // Seen to fail with outcomes that are not kept.
    alone("cuda::self_test::trials_are_made_once_for_a_device", || {
        let device = device();
        let streams = || {
            let before = device.calls_of("cuStreamCreate");
            drop(builder(&device).build().unwrap());
            device.calls_of("cuStreamCreate") - before
        };
        assert_eq!([streams(), streams(), streams()], [9, 8, 8]);
    });
}
