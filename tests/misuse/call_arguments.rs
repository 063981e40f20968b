use anabranch::{Executor, Flow, Function, Graph, Value};

fn main() {
    let exec = Executor::inline();
    let grow = Function::new("grow", |g: &mut Graph, (x, y): (Value<f64>, Value<u8>)| {
        g.task("grow", (&x, &y), |x: &f64, y: &u8| x + f64::from(*y))
    });
    let grow = grow.unwrap();
    let _ = exec.call(&grow, (1.0, "two"));
    let _ = exec.call(&grow, 1.0);
    let _ = exec.flow(async move |f: &Flow| {
        let (x, y) = (f.value("x", 1.0), f.value("y", "two"));
        let _ = f.call(&grow, (&x, &y));
        let _ = f.call(&grow, (&x, 2));
        Ok(())
    });
}
