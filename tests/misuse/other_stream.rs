use anabranch::Graph;

struct Lathe;

fn main() {
    let mut g = Graph::new();
    g.kernel("turn", (), |_: &mut Lathe| ());
}
