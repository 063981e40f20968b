use anabranch::{Engine, Executor};
use std::rc::Rc;

fn main() {
    let _ = Engine::new(&Executor::inline()).unwrap().var("value", Rc::new(1));
}
