//! Data that does not live as long as the call that lends it, and references that leave a read.

use anabranch::run::{Lent, LentMut, lend};

fn main() {
    lend(|lender| {
        let inside = vec![1];
        let _: Lent<[i32]> = lender.lend(inside.as_slice());
    });

    let mut x = vec![1, 2, 3];
    lend(|lender| {
        let lent = lender.lend(x.as_slice());
        let _: &[i32] = lent.with(|x| x).unwrap();
    });

    lend(|lender| (lender.lend_mut(x.as_mut_slice()), lender.lend_mut(x.as_mut_slice())));
}

fn shorter<'a>(lent: LentMut<&'static str>) -> LentMut<&'a str> {
    lent
}
