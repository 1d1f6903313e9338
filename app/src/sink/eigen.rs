//! Eigenvalues and eigenvectors of a symmetric matrix, in place, without an allocation.
//!
//! Householder reduction to tridiagonal form, then implicit QR steps with Wilkinson's shift
//! (Golub and Van Loan, *Matrix Computations*, sections 8.3.1 to 8.3.3). Written here rather than
//! taken from a library because the PCA runs between two batches: it must not allocate, and a
//! 256 × 256 matrix does not belong on a thread's stack. Only `+ - * /` and `sqrt` are used, which
//! IEEE 754 defines to the last bit, so every machine finds the same digits.

/// Room for the decomposition of matrices up to a size.
#[derive(Debug)]
pub(super) struct SymmetricEigen {
    /// The matrix; destroyed by the decomposition. Row stride: the size of the matrix at hand.
    matrix: Vec<f64>,
    /// Row `k`: the eigenvector of eigenvalue `k`.
    vectors: Vec<f64>,
    values: Vec<f64>,
    /// What lies beside the diagonal of the tridiagonal form.
    beside: Vec<f64>,
    /// The Householder vector at hand.
    reflector: Vec<f64>,
    scratch: Vec<f64>,
    size: usize,
}

/// Steps of the iteration per eigenvalue; two or three are usual.
const MAX_STEPS: usize = 50;

impl SymmetricEigen {
    /// Room for matrices up to `size` × `size`.
    pub(super) fn new(size: usize) -> Self {
        Self {
            matrix: vec![0.0; size * size],
            vectors: vec![0.0; size * size],
            values: vec![0.0; size],
            beside: vec![0.0; size],
            reflector: vec![0.0; size],
            scratch: vec![0.0; size],
            size: 0,
        }
    }

    /// Decomposes the matrix of `size` rows whose lower triangle is `entry(row, column)`,
    /// `column ≤ row`. False when the iteration does not converge (an entry is not finite).
    pub(super) fn decompose(
        &mut self,
        size: usize,
        mut entry: impl FnMut(usize, usize) -> f64,
    ) -> bool {
        self.size = size;
        for row in 0..size {
            for column in 0..=row {
                let value = entry(row, column);
                self.matrix[row * size + column] = value;
                self.matrix[column * size + row] = value;
            }
        }
        self.vectors[..size * size].fill(0.0);
        for k in 0..size {
            self.vectors[k * size + k] = 1.0;
        }
        self.tridiagonalise();
        self.diagonalise()
    }

    /// The eigenvalues, in no order.
    pub(super) fn values(&self) -> &[f64] {
        &self.values[..self.size]
    }

    /// The eigenvector of eigenvalue `k`, of length 1.
    pub(super) fn vector(&self, k: usize) -> &[f64] {
        &self.vectors[k * self.size..(k + 1) * self.size]
    }

    /// Reflects the matrix to tridiagonal form, column by column.
    fn tridiagonalise(&mut self) {
        let n = self.size;
        for k in 0..n {
            if k + 2 < n {
                self.reflect(k);
            }
            self.values[k] = self.matrix[k * n + k];
            self.beside[k] = if k + 1 < n { self.matrix[(k + 1) * n + k] } else { 0.0 };
        }
    }

    /// Makes everything below the subdiagonal of column `k` zero: with `H = I − β v vᵀ`, the matrix
    /// becomes `H A H` and the vectors `H V`.
    fn reflect(&mut self, k: usize) {
        let n = self.size;
        let from = k + 1;
        let reflector = &mut self.reflector[from..n];
        for (i, v) in reflector.iter_mut().enumerate() {
            *v = self.matrix[(from + i) * n + k];
        }
        // Scaled so that squares neither overflow nor vanish.
        let scale = reflector.iter().fold(0.0_f64, |max, v| max.max(v.abs()));
        if reflector[1..].iter().all(|&v| v == 0.0) {
            return;
        }
        reflector.iter_mut().for_each(|v| *v /= scale);
        let norm = dot(reflector, reflector).sqrt();
        // The sign that does not cancel.
        let target = if reflector[0] > 0.0 { -norm } else { norm };
        reflector[0] -= target;
        let beta = 2.0 / dot(reflector, reflector);
        self.matrix[from * n + k] = target * scale;

        // p = β A v, w = p − (β/2)(pᵀv) v, A ← A − v wᵀ − w vᵀ on the lower right block.
        for i in from..n {
            let row = &self.matrix[i * n + from..i * n + n];
            self.scratch[i] = beta * dot(row, reflector);
        }
        let half = beta / 2.0 * dot(&self.scratch[from..n], reflector);
        for (w, v) in self.scratch[from..n].iter_mut().zip(reflector.iter()) {
            *w -= half * v;
        }
        let w = &self.scratch[from..n];
        for i in 0..n - from {
            let (v_i, w_i) = (reflector[i], w[i]);
            let row = &mut self.matrix[(from + i) * n + from..(from + i) * n + n];
            for ((a, v_j), w_j) in row.iter_mut().zip(reflector.iter()).zip(w) {
                *a -= v_i * w_j + w_i * v_j;
            }
        }

        // V ← H V: every row below `k` loses its share of t = β vᵀ V.
        self.scratch[..n].fill(0.0);
        for (i, v_i) in reflector.iter().enumerate() {
            let row = &self.vectors[(from + i) * n..(from + i + 1) * n];
            self.scratch[..n].iter_mut().zip(row).for_each(|(t, x)| *t += beta * v_i * x);
        }
        for (i, v_i) in reflector.iter().enumerate() {
            let row = &mut self.vectors[(from + i) * n..(from + i + 1) * n];
            row.iter_mut().zip(&self.scratch[..n]).for_each(|(x, t)| *x -= v_i * t);
        }
    }

    /// QR steps until nothing is left beside the diagonal.
    fn diagonalise(&mut self) -> bool {
        let n = self.size;
        // A sum, not a maximum: `f64::max` would pass over a value that is not a number.
        let norm: f64 = (0..n).map(|k| self.values[k].abs() + self.beside[k].abs()).sum();
        if !norm.is_finite() {
            return false;
        }
        let negligible = f64::EPSILON * norm / n.max(1) as f64;
        let mut high = n;
        for _ in 0..=n * MAX_STEPS {
            while high > 0 && (high == 1 || self.beside[high - 2].abs() <= negligible) {
                high -= 1;
            }
            if high == 0 {
                return true;
            }
            // The block that ends at `high` and has no negligible entry.
            let mut low = high - 2;
            while low > 0 && self.beside[low - 1].abs() > negligible {
                low -= 1;
            }
            self.qr_step(low, high - 1);
        }
        false
    }

    /// One implicit QR step on the block of rows `low..=high`.
    fn qr_step(&mut self, low: usize, high: usize) {
        let last = self.beside[high - 1];
        let delta = (self.values[high - 1] - self.values[high]) / 2.0;
        let root = (delta * delta + last * last).sqrt();
        let shift =
            self.values[high] - last * last / (delta + if delta < 0.0 { -root } else { root });
        let mut x = self.values[low] - shift;
        let mut z = self.beside[low];
        for k in low..high {
            let r = (x * x + z * z).sqrt();
            let (c, s) = if r > 0.0 { (x / r, z / r) } else { (1.0, 0.0) };
            if k > low {
                self.beside[k - 1] = r;
            }
            let (a, b, f) = (self.values[k], self.values[k + 1], self.beside[k]);
            self.values[k] = c * c * a + 2.0 * c * s * f + s * s * b;
            self.values[k + 1] = s * s * a - 2.0 * c * s * f + c * c * b;
            self.beside[k] = c * s * (b - a) + (c * c - s * s) * f;
            if k + 1 < high {
                x = self.beside[k];
                z = s * self.beside[k + 1];
                self.beside[k + 1] *= c;
            }
            let n = self.size;
            let (upper, lower) = self.vectors.split_at_mut((k + 1) * n);
            for (p, q) in upper[k * n..].iter_mut().zip(&mut lower[..n]) {
                (*p, *q) = (c * *p + s * *q, c * *q - s * *p);
            }
        }
    }
}

/// The inner product, in four partial sums: the order of additions is fixed, and independent of
/// the machine.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0_f64; 4];
    let (a4, a_rest) = a.as_chunks::<4>();
    let (b4, b_rest) = b.as_chunks::<4>();
    for (x, y) in a4.iter().zip(b4) {
        for lane in 0..4 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deterministic number in [−1, 1).
    fn noise(state: &mut u64) -> f64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn check(size: usize, matrix: &[f64]) {
        let mut eigen = SymmetricEigen::new(size.max(3));
        assert!(eigen.decompose(size, |i, j| matrix[i * size + j]));
        let norm = matrix.iter().fold(0.0_f64, |max, v| max.max(v.abs()));
        for k in 0..size {
            let vector = eigen.vector(k);
            for i in 0..size {
                let image = dot(&matrix[i * size..(i + 1) * size], vector);
                let wanted = eigen.values()[k] * vector[i];
                assert!((image - wanted).abs() <= 1e-13 * norm * size as f64, "A v = λ v, {k}");
            }
            for l in 0..size {
                let wanted = f64::from(u8::from(l == k));
                assert!((dot(vector, eigen.vector(l)) - wanted).abs() < 1e-12, "v{k} · v{l}");
            }
        }
        let trace: f64 = (0..size).map(|i| matrix[i * size + i]).sum();
        let sum: f64 = eigen.values().iter().sum();
        assert!((trace - sum).abs() <= 1e-13 * norm * size as f64);
    }

    #[test]
    fn the_two_by_two_of_the_textbook() {
        let mut eigen = SymmetricEigen::new(2);
        assert!(eigen.decompose(2, |i, j| if i == j { 2.0 } else { 1.0 }));
        let mut values = eigen.values().to_vec();
        values.sort_by(f64::total_cmp);
        assert!((values[0] - 1.0).abs() < 1e-15 && (values[1] - 3.0).abs() < 1e-15);
    }

    #[test]
    fn random_matrices_of_every_size_satisfy_the_definition() {
        let mut state = 7;
        for size in [1, 2, 3, 4, 5, 8, 17, 32, 64] {
            let mut matrix = vec![0.0; size * size];
            for i in 0..size {
                for j in 0..=i {
                    let value = noise(&mut state);
                    matrix[i * size + j] = value;
                    matrix[j * size + i] = value;
                }
            }
            check(size, &matrix);
        }
    }

    #[test]
    fn singular_diagonal_and_zero_matrices() {
        check(4, &[0.0; 16]);
        check(3, &[1.0; 9]);
        check(3, &[5.0, 0.0, 0.0, 0.0, -2.0, 0.0, 0.0, 0.0, 5.0]);
        // A column that points along an axis but for a trace: the reflection must not cancel.
        for one in [1.0, -1.0] {
            check(3, &[1.0, one, 1e-9, one, 2.0, 0.3, 1e-9, 0.3, 5.0]);
        }
        // Rank one, with entries far apart.
        let v = [1e6, 1.0, 1e-6, 3.0];
        let outer: Vec<f64> = v.iter().flat_map(|a| v.map(|b| a * b)).collect();
        check(4, &outer);
    }

    #[test]
    fn an_entry_that_is_not_finite_is_refused() {
        let mut eigen = SymmetricEigen::new(3);
        assert!(!eigen.decompose(3, |_, _| f64::NAN));
        assert!(!eigen.decompose(3, |_, _| f64::INFINITY));
        // The room is as good as new afterwards.
        assert!(eigen.decompose(3, |i, j| f64::from(u8::from(i == j))));
        assert_eq!(eigen.values(), [1.0, 1.0, 1.0]);
    }
}
