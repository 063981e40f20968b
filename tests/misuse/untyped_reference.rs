use anabranch::Graph;

fn main() {
    let mut g = Graph::new();
    let bytes = g.task("bytes", (), || vec![1u8, 2, 3]);
    g.task("is told later", &bytes, |bytes| drop::<&Vec<u8>>(bytes));
}
