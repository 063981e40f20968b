//! Programs whose results are known.

use anabranch::{Flow, Result, Var};

use super::{Maths, everywhere, in_every_order};

/// `times` × { z ← z · w }
async fn power(f: &Flow, maths: &Maths, z: &Var<f64>, w: &Var<f64>, times: u32) -> Result<Var<f64>> {
    let mut z = z.clone();
    for _ in 0..times {
        z = maths.mul(f, &z, w);
        f.get(&z).await?;
    }
    Ok(z)
}

#[test]
fn a_loop_runs_its_body_five_times() {
    let grown = (0..5).fold(1.0, |z, _| z * 1.11) * 0.34;
    assert!(f64::abs(grown - 0.5729197727340003) < 1e-15);
    everywhere(grown, async |f, maths| {
        let (one, w, last) = (f.value("z", 1.0), f.value("w", 1.11), f.value("last", 0.34));
        let z = power(f, maths, &one, &w, 5).await?;
        Ok(*f.get(&maths.mul(f, &z, &last)).await?)
    });
}

/// 5 × { z ← z · 0.92 } from 1.2, then z · 3.2 + 1.2.
fn outside() -> f64 {
    let z = (0..5).fold(1.2, |z, _| z * 0.92) * 3.2 + 1.2;
    assert!(f64::abs(z - 3.730873049088) < 1e-14);
    z
}

#[test]
fn a_value_outside_keeps_what_it_was() {
    everywhere(outside(), async |f, maths| {
        let (x, y, z0) = (f.value("x", 0.92), f.value("y", 3.2), f.value("z0", 1.2));
        let z = power(f, maths, &z0, &x, 5).await?;
        Ok(*f.get(&maths.add(f, &maths.mul(f, &z, &y), &z0)).await?)
    });
}

#[test]
fn a_two_step_carry_equals_the_unrolled_loop() {
    let (mut x0, mut x1) = (0.3, 0.7);
    for _ in 0..5 {
        (x0, x1) = (x1, x0 + x1 * 1.7);
    }
    everywhere((x0, x1), async |f, maths| {
        let (mut x0, mut x1, w) = (f.value("x0", 0.3), f.value("x1", 0.7), f.value("w", 1.7));
        for _ in 0..5 {
            (x0, x1) = (x1.clone(), maths.add(f, &x0, &maths.mul(f, &x1, &w)));
        }
        Ok((*f.get(&x0).await?, *f.get(&x1).await?))
    });
}

/// x < 0: 0; x < 1: itself; x < 2: 0.5 x + 0.5; else 1.5.
async fn piecewise(f: &Flow, maths: &Maths, x: &Var<f64>) -> Result<Var<f64>> {
    let half = f.value("half", 0.5);
    Ok(match *f.get(x).await? {
        x if x < 0.0 => f.value("zero", 0.0),
        one if one < 1.0 => x.clone(),
        x_ if x_ < 2.0 => maths.add(f, &maths.mul(f, x, &half), &half),
        _ => f.value("most", 1.5),
    })
}

#[test]
fn a_branch_takes_the_arm_of_its_value() {
    for (x, y) in [(-1.0, 0.0), (0.76, 0.76), (1.226, 1.113), (2.1, 1.5)] {
        everywhere(y, async |f, maths| {
            let y = piecewise(f, maths, &f.value("x", x)).await?;
            Ok(*f.get(&y).await?)
        });
    }
}

#[test]
fn a_branch_in_a_loop() {
    for (x, y) in [(1.226, 0.3042375), (0.8, 0.24)] {
        everywhere(y, async |f, maths| {
            let mut z = f.value("x", x);
            for _ in 0..4 {
                z = piecewise(f, maths, &z).await?;
            }
            Ok(*f.get(&maths.mul(f, &z, &f.value("w", 0.3))).await?)
        });
    }
}

#[test]
fn a_loop_in_a_loop_equals_the_unrolled_loop() {
    let mut x = 0.9;
    for _ in 0..5 {
        let y = (0..5).fold(x, |y, _| y * 0.8);
        x += y;
    }
    everywhere(x, async |f, maths| {
        let (mut x, w) = (f.value("x", 0.9), f.value("w", 0.8));
        for _ in 0..5 {
            let y = power(f, maths, &x, &w, 5).await?;
            x = maths.add(f, &x, &y);
        }
        Ok(*f.get(&x).await?)
    });
}

#[test]
fn small_programs_give_the_same_in_every_order() {
    let orders = in_every_order(outside(), async |f, maths| {
        let (x, y, z0) = (f.value("x", 0.92), f.value("y", 3.2), f.value("z0", 1.2));
        let mut z = z0.clone();
        for _ in 0..5 {
            z = maths.mul(f, &z, &x);
        }
        Ok(*f.get(&maths.add(f, &maths.mul(f, &z, &y), &z0)).await?)
    });
    assert_eq!(orders, 1);
    let orders = in_every_order((8.0, 9.0), async |f, maths| {
        let (mut x, mut y, two, three) = (f.value("x", 1.0), f.value("y", 1.0), f.value("two", 2.0), f.value("three", 3.0));
        for _ in 0..3 {
            x = maths.mul(f, &x, &two);
        }
        for _ in 0..2 {
            y = maths.mul(f, &y, &three);
        }
        let (x, y) = futures::try_join!(f.get(&x), f.get(&y))?;
        Ok((*x, *y))
    });
    assert!(orders >= 10, "{orders}");
}
