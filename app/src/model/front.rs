//! From pixels to the network's input: `y = x·a + b` per channel.
//!
//! The packets carry `x = pixel − 128`, and the networks were trained on
//! `(pixel/255 − mean) / std`, so `a = 1/(255·std)` and `b = (128/255 − mean)/std`.

/// Mean of each channel (R, G, B) of the images that the networks were trained on, as torchvision
/// documents it.
pub const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of each channel (R, G, B), likewise.
pub const STD: [f64; 3] = [0.229, 0.224, 0.225];

/// The factor `a` of each channel, rounded once.
#[must_use]
pub fn scale() -> [f32; 3] {
    STD.map(|std| narrow(1.0 / (255.0 * std)))
}

/// The summand `b` of each channel, rounded once.
#[must_use]
pub fn offset() -> [f32; 3] {
    std::array::from_fn(|c| narrow((128.0 / 255.0 - MEAN[c]) / STD[c]))
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pixel_becomes_what_the_network_was_trained_on() {
        for (c, (a, b)) in scale().into_iter().zip(offset()).enumerate() {
            for pixel in 0..=255_u8 {
                let x = f64::from(pixel) - 128.0;
                let trained = (f64::from(pixel) / 255.0 - MEAN[c]) / STD[c];
                let ours = x * f64::from(a) + f64::from(b);
                assert!((ours - trained).abs() < 1e-6, "channel {c}, pixel {pixel}");
            }
        }
    }
}
