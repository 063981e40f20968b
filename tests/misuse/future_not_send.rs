use anabranch::Graph;
use std::rc::Rc;
use std::sync::Arc;

fn main() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    g.future("future", &x, async |x: Arc<u64>| {
        let held = Rc::new(*x);
        std::future::ready(()).await;
        Ok(*held)
    });
}
