//! What must hold for weights, whatever file they are from.

use tensorwire::model::weights::{ReadError, Weights};

/// Checks an answer about a file of `length` bytes, and returns the weights if there are any.
pub fn check(answer: Result<Weights, ReadError>, length: usize) -> Option<Weights> {
    match answer {
        Ok(weights) => {
            let mut elements = 0;
            for (name, tensor) in weights.iter() {
                let product = tensor.shape.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim));
                assert_eq!(product, Some(tensor.values.len()), "{name}");
                elements += tensor.values.len();
            }
            // A file that says the same bytes over and over must not fill the memory.
            assert!(elements <= length, "{elements} elements from {length} bytes");
            Some(weights)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
