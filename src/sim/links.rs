//! Links between ranks, and how long an exchange over them takes.

use crate::error::{Kind, Result};
use crate::graph::{COST_US_MAX, Exchange};

/// Links between ranks, with a latency and a bandwidth: a message of n bytes takes α + β·n (Hockney, "The
/// communication challenge for MPP", 1994).
///
/// Collectives take what the best of the usual algorithms takes for their size, without work for reductions
/// (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005).
/// With P ranks, which each give n bytes, and L = log2 P, rounded up:
///
/// | exchange | algorithm | time |
/// |---|---|---|
/// | barrier | dissemination | L·α |
/// | broadcast | binomial tree | L·(α + β·n) |
/// | | scatter and all-gather | (L + P - 1)·α + 2·(P - 1)/P·β·n |
/// | all-reduce | recursive doubling | L·(α + β·n) |
/// | | reduce-scatter and all-gather | 2·L·α + 2·(P - 1)/P·β·n |
/// | all-gather | recursive doubling | L·α + (P - 1)·β·n |
/// | reduce-scatter | recursive halving | L·α + (P - 1)/P·β·n |
/// | all-to-all | Bruck | L·α + L/2·β·n |
/// | | pairwise | (P - 1)·α + (P - 1)/P·β·n |
///
/// # Examples
/// ```
/// use anabranch::graph::Exchange;
/// use anabranch::sim::Links;
///
/// let links = Links::new(2.0, 10.0)?;
/// assert_eq!(links.takes_us(&Exchange::SendTo { to: 1.into() }, 50_000, 2), 2.0 + 5.0);
/// assert_eq!(links.takes_us(&Exchange::Barrier, 0, 1000), 10.0 * 2.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Links {
    latency_us: f64,
    us_per_byte: f64,
}

impl Default for Links {
    /// Returns links with 2 µs and 10 GB/s, as of a cluster with 100 Gb/s InfiniBand.
    fn default() -> Self {
        Self { latency_us: 2.0, us_per_byte: 1e-4 }
    }
}

impl Links {
    /// Returns links with a latency in microseconds, and a bandwidth in gigabytes (10⁹ bytes) per second.
    ///
    /// # Errors
    /// If the latency is not from 0 to 10¹², or the bandwidth is below 10⁻⁶.
    pub fn new(latency_us: f64, gigabytes_per_s: f64) -> Result<Self> {
        let fault = if !(0.0..=COST_US_MAX).contains(&latency_us) {
            format!("links have a latency of {latency_us:?} us: a time is from 0 to 10^12")
        } else if !(1e-6..=f64::INFINITY).contains(&gigabytes_per_s) {
            format!("links have a bandwidth of {gigabytes_per_s:?} GB/s: give at least 10^-6")
        } else {
            return Ok(Self { latency_us, us_per_byte: 1e-3 / gigabytes_per_s });
        };
        Err(Kind::Simulation { fault }.into())
    }

    /// Returns how long an exchange among so many ranks takes, in microseconds. `bytes` is what each rank
    /// gives.
    pub fn takes_us(&self, exchange: &Exchange, bytes: u64, ranks: u32) -> f64 {
        let (ranks, us) = (f64::from(ranks.max(1)), self.us_per_byte * bytes as f64);
        let (rounds, others) = (ranks.log2().ceil(), ranks - 1.0);
        let of = |messages: f64, shares: f64| messages * self.latency_us + shares * us;
        match exchange {
            Exchange::Barrier => of(rounds, 0.0),
            Exchange::Broadcast { .. } => of(rounds, rounds).min(of(rounds + others, 2.0 * others / ranks)),
            Exchange::AllReduce { .. } => of(rounds, rounds).min(of(2.0 * rounds, 2.0 * others / ranks)),
            Exchange::AllGather => of(rounds, others),
            Exchange::ReduceScatter { .. } => of(rounds, others / ranks),
            Exchange::AllToAll => of(rounds, rounds / 2.0).min(of(others, others / ranks)),
            Exchange::SendRecv { .. } | Exchange::SendTo { .. } | Exchange::RecvFrom { .. } => of(1.0, 1.0),
        }
    }
}
