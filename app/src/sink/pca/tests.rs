use super::*;

/// A deterministic number in [−1, 1), as an `f32`.
fn noise(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let value = u16::try_from(*state >> 48).expect("16 bits");
    f32::from(value) / 32_768.0 - 1.0
}

/// The scores the long way round: the `d × d` covariance, decomposed by cyclic Jacobi rotations,
/// another algorithm than the one under test.
fn naive(rows: &[Vec<f32>]) -> Vec<[f64; 2]> {
    let (n, d) = (rows.len(), rows[0].len());
    let mean: Vec<f64> =
        (0..d).map(|k| rows.iter().map(|row| f64::from(row[k])).sum::<f64>() / n as f64).collect();
    let centred: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.iter().zip(&mean).map(|(x, m)| f64::from(*x) - m).collect())
        .collect();
    let mut a: Vec<Vec<f64>> = (0..d)
        .map(|p| (0..d).map(|q| centred.iter().map(|row| row[p] * row[q]).sum()).collect())
        .collect();
    let mut v: Vec<Vec<f64>> =
        (0..d).map(|p| (0..d).map(|q| f64::from(u8::from(p == q))).collect()).collect();
    for _ in 0..100 {
        for p in 0..d {
            for q in p + 1..d {
                jacobi(&mut a, &mut v, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..d).collect();
    order.sort_by(|&p, &q| a[q][q].total_cmp(&a[p][p]));
    let axes: Vec<Vec<f64>> = order[..2]
        .iter()
        .map(|&k| {
            let axis: Vec<f64> = (0..d).map(|p| v[p][k]).collect();
            let largest = axis.iter().copied().max_by(|x, y| x.abs().total_cmp(&y.abs()));
            let turn = if largest < Some(0.0) { -1.0 } else { 1.0 };
            axis.iter().map(|x| turn * x).collect()
        })
        .collect();
    let project = |row: &Vec<f64>, axis: &Vec<f64>| row.iter().zip(axis).map(|(x, y)| x * y).sum();
    centred.iter().map(|row| [project(row, &axes[0]), project(row, &axes[1])]).collect()
}

fn jacobi(a: &mut [Vec<f64>], v: &mut [Vec<f64>], p: usize, q: usize) {
    if a[p][q] == 0.0 {
        return;
    }
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for row in a.iter_mut().chain(v.iter_mut()) {
        (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
    }
    let [a_p, a_q] = a.get_disjoint_mut([p, q]).expect("two rows");
    for (x, y) in a_p.iter_mut().zip(a_q) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

fn project(rows: &[Vec<f32>]) -> Vec<[f64; 2]> {
    let mut pca = Pca::new(rows.len().max(2), rows.first().map_or(3, Vec::len));
    pca.project(rows.iter().map(Vec::as_slice)).expect("finite rows").to_vec()
}

fn assert_close(found: &[[f64; 2]], wanted: &[[f64; 2]]) {
    assert_eq!(found.len(), wanted.len());
    for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
        for component in 0..2 {
            let difference = (a[component] - b[component]).abs();
            assert!(difference < 1e-9, "row {i}, pc{}: {a:?} for {b:?}", component + 1);
        }
    }
}

#[test]
fn the_covariance_the_long_way_round_gives_the_same_scores() {
    let mut state = 1;
    for (n, d) in [(3, 5), (8, 6), (32, 24), (40, 7)] {
        // Each feature has a scale of its own, so that no two directions have the same spread.
        let rows: Vec<Vec<f32>> = (0..n)
            .map(|_| (0..d).map(|k: u8| noise(&mut state) / f32::from(k + 1) + 3.0).collect())
            .collect();
        assert_close(&project(&rows), &naive(&rows));
    }
}

#[test]
fn four_points_on_two_axes_by_hand() {
    // The mean is (1, 2, 0); the spread is 3 along x and 1 along y.
    let rows = [[4.0, 2.0, 0.0], [-2.0, 2.0, 0.0], [1.0, 3.0, 0.0], [1.0, 1.0, 0.0]];
    let rows: Vec<Vec<f32>> = rows.iter().map(|row| row.to_vec()).collect();
    assert_close(&project(&rows), &[[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]);
}

#[test]
fn the_largest_component_of_an_axis_points_up() {
    // Along (1, −2): the second feature is the largest, so the scores grow with it.
    let rows = [vec![-1.0_f32, 2.0], vec![0.0, 0.0], vec![1.0, -2.0]];
    let root = 5.0_f64.sqrt();
    assert_close(&project(&rows), &[[root, 0.0], [0.0, 0.0], [-root, 0.0]]);
    // Along (1, −1) both are the largest: the first of them decides, whatever rounding says.
    let rows = [vec![-0.1_f32, 0.1], vec![0.3, -0.3]];
    let scores = project(&rows);
    assert!(scores[0][0] < 0.0 && scores[1][0] > 0.0, "{scores:?}");
    assert_eq!(sign(&[0.2, -1.0, 1.0 + 1e-12]), -1.0);
    assert_eq!(sign(&[0.2, -1.0, 1.0 + 1e-6]), 1.0);
}

#[test]
fn directions_without_spread_are_zero_and_never_nan() {
    assert_eq!(project(&[]), [[0.0; 2]; 0]);
    assert_eq!(project(&[vec![0.3, 0.7, -4.0]]), [[0.0, 0.0]]);
    let equal = vec![vec![0.1_f32, 0.7, 1e-3]; 7];
    assert_eq!(project(&equal), [[0.0, 0.0]; 7]);
    assert_eq!(project(&[vec![0.0; 5], vec![0.0; 5]]), [[0.0, 0.0]; 2]);
    // Images on a line span one direction, whatever rounding leaves of the others.
    let line: Vec<Vec<f32>> = (0..9).map(|i| vec![i as f32 * 0.7, 3.1, i as f32 * -1.3]).collect();
    let scores = project(&line);
    assert!(scores.iter().all(|score| score[1] == 0.0), "{scores:?}");
    // Two images span one direction; the second component is exactly 0, not noise.
    let two = project(&[vec![0.123_f32, 4.5, 1e-5], vec![0.9, -0.3, 2.5]]);
    assert_eq!([two[0][1], two[1][1]], [0.0, 0.0]);
    assert!(two[0][0] != 0.0);
}

#[test]
fn a_large_common_offset_costs_no_digits() {
    let offset = 4096.0_f32;
    let rows = [vec![offset + 0.5, offset], vec![offset - 0.5, offset], vec![offset, offset]];
    assert_close(&project(&rows), &[[0.5, 0.0], [-0.5, 0.0], [0.0, 0.0]]);
}

#[test]
fn rows_that_have_no_pca_are_refused_and_leave_no_trace() {
    let mut pca = Pca::new(2, 2);
    let (a, b, c) = ([0.0_f32, 1.0], [2.0_f32, 1.0], [0.0_f32; 3]);
    assert!(pca.project([&a[..], &c[..]]).is_none(), "another length");
    assert!(pca.project([&a[..], &b[..], &a[..]]).is_none(), "too many");
    assert!(pca.project([&a[..], &[f32::NAN, 0.0][..]]).is_none(), "not a number");
    assert!(pca.project([&a[..], &[f32::INFINITY, 0.0][..]]).is_none(), "not finite");
    assert_close(pca.project([&a[..], &b[..]]).expect("finite"), &[[-1.0, 0.0], [1.0, 0.0]]);
}

#[test]
fn the_largest_batch_fits() {
    let mut state = 3;
    let rows: Vec<Vec<f32>> =
        (0..256).map(|_| (0..40).map(|_| noise(&mut state)).collect()).collect();
    let scores = project(&rows);
    // Scores are centred, and the two components are uncorrelated.
    let sums = scores.iter().fold([0.0; 3], |s, [a, b]| [s[0] + a, s[1] + b, s[2] + a * b]);
    assert!(sums.iter().all(|sum| sum.abs() < 1e-9), "{sums:?}");
}
