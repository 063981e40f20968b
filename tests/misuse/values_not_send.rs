use anabranch::Graph;
use std::cell::Cell;
use std::rc::Rc;

fn main() {
    let mut g = Graph::new();
    g.task("value", (), || Rc::new(1));
    g.task("value that is not Sync", (), || Cell::new(1));
}
