//! An error of somebody else's is not turned into one of this library's.

fn parse(text: &str) -> anabranch::Result<i32> {
    Ok(text.parse::<i32>()?)
}

fn main() {
    let _ = parse("1");
}
