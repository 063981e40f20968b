//! Data-parallel training: the ranks agree on the weights, and learn.

use anabranch::Result;

#[path = "../data_parallel.rs"]
#[allow(dead_code)]
mod data_parallel;

#[test]
fn all_ranks_have_the_same_weights_and_the_loss_falls() -> Result<()> {
    // Seen to fail with each rank's own gradient in place of `sum 1`.
    let ranks = data_parallel::train(100)?;
    let (losses, weights) = &ranks[0];
    assert_eq!(ranks.len(), 4);
    assert!(ranks.iter().all(|rank| rank.0 == *losses && rank.1 == *weights));
    assert!(losses[99] < 0.5 * losses[0], "{losses:?}");
    Ok(())
}
