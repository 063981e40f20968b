use anabranch::{Executor, Flow};

fn main() {
    let _ = Executor::inline().flow(|f: &Flow| async move {
        let x = f.value("x", 1);
        Ok(*f.get(&x).await?)
    });
}
