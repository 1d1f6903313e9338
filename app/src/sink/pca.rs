//! Principal components of the features of one batch: the first two scores of each image.
//!
//! With `n` images of `d` features, `n` far below `d`, the `n × n` Gram matrix of the centred rows
//! has the same non-zero eigenvalues as the `d × d` covariance (times `n − 1`). For an eigenvalue λ
//! with eigenvector `u` the principal axis is `v = Xᵀu / √λ` and the score of image `i`, its
//! centred row projected on that axis, is `√λ · uᵢ`.
//!
//! An axis is only defined up to its sign. Ours: the component of `v` with the largest magnitude is
//! positive; where several are within one part in 10⁹ of the largest, the first of them decides. A
//! direction without spread (one image, equal images, two images in the second component) has the
//! score 0 for every image. Two directions of exactly the same spread can be turned into each other
//! freely; then the scores are those of this algorithm, the same on every machine.

use super::eigen::{SymmetricEigen, dot};

/// Components within this fraction of the largest decide the sign together: rounding does not.
const SIGN_TIE: f64 = 1e-9;

/// Room for the PCA of one batch. Nothing is allocated after it is made.
#[derive(Debug)]
pub struct Pca {
    dim: usize,
    images: usize,
    /// Shape: `[images, dim]`, centred rows.
    rows: Vec<f64>,
    mean: Vec<f64>,
    axis: Vec<f64>,
    eigen: SymmetricEigen,
    scores: Vec<[f64; 2]>,
}

impl Pca {
    /// Room for up to `images` rows of `dim` features.
    #[must_use]
    pub fn new(images: usize, dim: usize) -> Self {
        Self {
            dim,
            images,
            rows: vec![0.0; images * dim],
            mean: vec![0.0; dim],
            axis: vec![0.0; dim],
            eigen: SymmetricEigen::new(images),
            scores: vec![[0.0; 2]; images],
        }
    }

    /// The first two scores of each row of `rows`, in their order.
    ///
    /// `None` when no PCA exists: a row has another length than the features, there are more rows
    /// than there is room for, or a value is not finite.
    pub fn project<'r>(
        &mut self,
        rows: impl IntoIterator<Item = &'r [f32]>,
    ) -> Option<&[[f64; 2]]> {
        let count = self.load(rows)?;
        let (data, dim) = (&self.rows, self.dim);
        let row = |i: usize| &data[i * dim..(i + 1) * dim];
        if !self.eigen.decompose(count, |i, j| dot(row(i), row(j))) {
            return None;
        }
        let (first, second) = largest_two(self.eigen.values());
        // Eigenvalues below this are the rounding errors of the largest.
        let largest = first.map_or(0.0, |k| self.eigen.values()[k]);
        let noise = largest * f64::EPSILON * 8.0 * count as f64;
        for (component, eigenvalue) in [first, second].into_iter().enumerate() {
            self.score(component, count, eigenvalue, noise);
        }
        Some(&self.scores[..count])
    }

    /// Copies the rows and centres them; gives their number.
    fn load<'r>(&mut self, rows: impl IntoIterator<Item = &'r [f32]>) -> Option<usize> {
        self.mean.fill(0.0);
        let mut count = 0;
        for source in rows {
            if count == self.images || source.len() != self.dim {
                return None;
            }
            let target = &mut self.rows[count * self.dim..(count + 1) * self.dim];
            for ((value, mean), &feature) in target.iter_mut().zip(&mut self.mean).zip(source) {
                *value = f64::from(feature);
                *mean += *value;
            }
            count += 1;
        }
        let divisor = count.max(1) as f64;
        self.mean.iter_mut().for_each(|mean| *mean /= divisor);
        for row in self.rows[..count * self.dim].chunks_exact_mut(self.dim.max(1)) {
            row.iter_mut().zip(&self.mean).for_each(|(value, mean)| *value -= mean);
        }
        Some(count)
    }

    /// Writes the scores of one component.
    fn score(&mut self, component: usize, count: usize, eigenvalue: Option<usize>, noise: f64) {
        let spread = eigenvalue.map(|k| (k, self.eigen.values()[k])).filter(|&(_, v)| v > noise);
        let Some((k, lambda)) = spread else {
            self.scores[..count].iter_mut().for_each(|score| score[component] = 0.0);
            return;
        };
        let vector = self.eigen.vector(k);
        self.axis.fill(0.0);
        for (row, u) in self.rows.chunks_exact(self.dim.max(1)).zip(vector) {
            self.axis.iter_mut().zip(row).for_each(|(axis, value)| *axis += u * value);
        }
        let length = lambda.sqrt() * sign(&self.axis);
        for (score, u) in self.scores[..count].iter_mut().zip(vector) {
            score[component] = length * u;
        }
    }
}

/// The indices of the largest value and of the second largest; of equal ones the earlier first.
fn largest_two(values: &[f64]) -> (Option<usize>, Option<usize>) {
    let largest_but = |without: Option<usize>| {
        (0..values.len())
            .filter(|&k| Some(k) != without)
            .reduce(|best, k| if values[k] > values[best] { k } else { best })
    };
    let first = largest_but(None);
    (first, first.and_then(|_| largest_but(first)))
}

/// 1, or −1 where the axis has to be turned for its largest component to be positive.
fn sign(axis: &[f64]) -> f64 {
    let largest = axis.iter().fold(0.0_f64, |max, value| max.max(value.abs()));
    let decides = axis.iter().find(|value| value.abs() >= largest * (1.0 - SIGN_TIE));
    if decides.is_some_and(|&value| value < 0.0) { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests;
