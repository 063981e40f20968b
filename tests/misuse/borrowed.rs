use anabranch::{Executor, Graph, inputs};

fn main() {
    let bytes = vec![1u8, 2, 3];
    let mut g = Graph::new();
    let x = g.input::<Vec<u8>>("x");
    g.task("gives a borrow", &x, |x: &Vec<u8>| &x[0]);
    g.task("captures a borrow", (), || bytes.len());
    let y = g.input::<&[u8]>("y");
    g.task("reads a borrow", &y, |y: &&[u8]| y.len());
    let plan = g.compile().unwrap();
    let _run = Executor::inline().run(&plan, inputs! { "y" => &bytes[..] });
}
