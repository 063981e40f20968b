use anabranch::graph::times;
use anabranch::Graph;

fn main() {
    let mut g = Graph::new();
    let x = g.task("x", (), || 1.0);
    g.repeat("a number is no condition", &x, |c, x| c.task("x", &x, |x: &f64| x - 1.0), |_, x| x);
    g.repeat("one state, and two of them", &x, times(2), |_, x| (x, x));
    g.branch("a number with a fraction", &x, &x).join();
}
