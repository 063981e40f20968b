//! The data loader: its losses depend on the seed alone.

use anabranch::{BoxError, Executor};

#[path = "../data_loader.rs"]
#[allow(dead_code)]
mod data_loader;

#[tokio::test]
async fn a_seed_gives_the_same_losses_everywhere() -> Result<(), BoxError> {
    // Seen to fail with samples that come as they are done.
    let expected = data_loader::train(&Executor::inline(), 3).await?;
    assert!(expected.len() == 20 && expected[19] < expected[0]);
    for exec in [Executor::host()?, Executor::builder().workers(1).build()?, Executor::sim(5)] {
        assert_eq!(data_loader::train(&exec, 3).await?, expected);
    }
    Ok(())
}
