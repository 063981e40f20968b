//! What is learnt: two half moons, by a network with one hidden layer.

const BATCH_SIZE: usize = 128;
/// Neurons between the two coordinates of a point and its class.
const HIDDEN: usize = 8;

pub(crate) struct Sample {
    point: [f32; 2],
    /// 0 or 1.
    class: f32,
}

/// A network with one hidden layer of tanh neurons.
pub(crate) struct Model {
    /// Of each neuron: the weights of the coordinates and of 1, and its weight in the output.
    neurons: [[f32; 4]; HIDDEN],
    bias: f32,
}

/// Draws points of two half moons, and moves each a little. The same number always gives the same batch.
pub(crate) fn prepare(number: u64) -> Vec<Sample> {
    let mut dice = fastrand::Rng::with_seed(number);
    let sample = |_| {
        let (class, angle) = (dice.u8(..2), std::f32::consts::PI * dice.f32());
        let on_moon = if class == 0 { [angle.cos(), angle.sin()] } else { [1.0 - angle.cos(), 0.5 - angle.sin()] };
        // About normal: the sum of twelve uniform numbers.
        let mut noise = || (0..12).map(|_| dice.f32() - 0.5).sum::<f32>();
        Sample { point: on_moon.map(|coordinate| coordinate + 0.12 * noise()), class: class.into() }
    };
    (0..BATCH_SIZE).map(sample).collect()
}

impl Model {
    pub(crate) fn new() -> Self {
        let mut dice = fastrand::Rng::with_seed(7);
        Self { neurons: std::array::from_fn(|_| std::array::from_fn(|_| 2.0 * dice.f32() - 1.0)), bias: 0.0 }
    }

    /// Makes one step down the gradient of the batch. Returns the loss before it, the mean cross-entropy.
    pub(crate) fn train(&mut self, batch: &[Sample]) -> f32 {
        let rate = 0.5 / batch.len() as f32;
        let (mut loss, mut slopes, mut bias_slope) = (0.0, [[0.0; 4]; HIDDEN], 0.0);
        for Sample { point: [x, y], class } in batch {
            let active = self.neurons.map(|[u, v, w, _]| (u * x + v * y + w).tanh());
            let output = self.bias + self.neurons.iter().zip(active).map(|(neuron, a)| neuron[3] * a).sum::<f32>();
            // ln(1 + e^output) - class · output, without overflow.
            loss += output.max(0.0) + (-output.abs()).exp().ln_1p() - class * output;
            let error = 1.0 / (1.0 + (-output).exp()) - class;
            bias_slope += error;
            for ((slope, neuron), a) in slopes.iter_mut().zip(&self.neurons).zip(active) {
                let inward = error * neuron[3] * (1.0 - a * a);
                for (slope, by) in slope.iter_mut().zip([inward * x, inward * y, inward, error * a]) {
                    *slope += by;
                }
            }
        }
        self.bias -= rate * bias_slope;
        for (weight, slope) in self.neurons.as_flattened_mut().iter_mut().zip(slopes.as_flattened()) {
            *weight -= rate * slope;
        }
        loss / batch.len() as f32
    }
}
