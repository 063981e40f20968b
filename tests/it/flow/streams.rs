//! Flows on streams: the operations of one stream run in order, and so do whole graphs.

use std::sync::{Arc, Mutex};

use anabranch::policy::Placement;
use anabranch::{Engine, Flow, Function, Graph, Op, Result, Value};

use super::{everywhere, suspend};
use crate::support::{block_on, executors};

#[test]
fn everything_on_one_stream_goes_in_order() {
    // Seen to fail (out of order) without the stream.
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = log.clone();
    let note = Function::new("note", move |g: &mut Graph, number: Value<u32>| {
        let log = noted.clone();
        g.future("note", &number, move |number: Arc<u32>| {
            let log = log.clone();
            async move {
                suspend().await;
                log.lock().unwrap().push(*number);
                Ok(())
            }
        })
    });
    let note = note.unwrap();
    for exec in executors() {
        block_on(exec.flow(async |f: &Flow| {
            let row = f.on(&f.stream());
            for number in 0..30 {
                let log = log.clone();
                match number % 3 {
                    0 => drop(row.task("task", (), move || log.lock().unwrap().push(number))),
                    1 => drop(row.call(&note, &f.value("number", number))),
                    _ => {
                        row.flow(async |f: &Flow| {
                            f.node(Op::task("inner", (), (), move || log.lock().unwrap().push(number))).await
                        })
                        .await?
                    }
                }
            }
            f.get(&row.task("last", (), || ())).await
        }))
        .unwrap();
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn a_branch_has_its_consumer_on_another_stream() {
    everywhere((10.0, 3.0), async |f, maths| {
        let (one, other) = (f.on(&f.stream()), f.on(&f.stream()));
        let (mut sums, x) = (Vec::new(), f.value("x", 2.0));
        for by in [5.0, 1.5] {
            let scaled = maths.mul(&one, &x, &f.value("by", by));
            let arm = if *f.get(&scaled).await? > 5.0 { &one } else { &other };
            let zero = f.value("zero", 0.0);
            sums.push(maths.add(if std::ptr::eq(arm, &one) { &other } else { &one }, &maths.add(arm, &scaled, &zero), &zero));
        }
        Ok((*f.get(&sums[0]).await?, *f.get(&sums[1]).await?))
    });
}

#[test]
fn a_flow_begins_on_an_engine_with_the_placement_of_its_choice() {
    for exec in executors() {
        for placement in [Placement::Single, Placement::PerBackend, Placement::Online] {
            let engine = Engine::builder(&exec).placement(placement).build().unwrap();
            let x = engine.var("x", 20);
            let sum = engine.flow(async |f: &Flow| -> Result<i32> { Ok(*f.get(&f.task("add", &x, |x: &i32| x + 1)).await?) });
            assert_eq!(block_on(sum).unwrap(), 21);
        }
    }
}
