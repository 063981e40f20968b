use anabranch::Graph;
use std::rc::Rc;

fn main() {
    let mut g = Graph::new();
    let captured = Rc::new(1);
    g.task("capture", (), move || *captured);
}
