use anabranch::Graph;

fn main() {
    let mut g = Graph::new();
    let bytes = g.task("bytes", (), || vec![1u8, 2, 3]);
    g.task("calls a method", &bytes, |bytes| bytes.len());
}
