//! Two lists of the same values, compared.

use serde::Serialize;

/// How far values are from the right ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whose values.
    pub name: String,
    /// How many.
    pub values: usize,
    /// Largest magnitude of a right value.
    pub largest: f32,
    /// Largest difference.
    pub max_abs: f32,
    /// L2 norm of the differences over that of the right values.
    pub relative_l2: f64,
    /// Values that are no numbers, or infinite, and should not be.
    pub not_finite: usize,
}

/// Compares `given` with `right`; `None` where they are not equally many.
#[must_use]
pub fn compare(name: &str, given: &[f32], right: &[f32]) -> Option<Comparison> {
    if given.len() != right.len() {
        return None;
    }
    let norm = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
    };
    let finite = || given.iter().zip(right).filter(|(g, _)| g.is_finite());
    let differences = || finite().map(|(g, r)| g - r);
    let length = norm(&mut right.iter().copied());
    let off = norm(&mut differences());
    Some(Comparison {
        name: name.to_owned(),
        values: given.len(),
        largest: right.iter().fold(0.0, |most, v| most.max(v.abs())),
        max_abs: differences().fold(0.0, |most, d| most.max(d.abs())),
        relative_l2: if length > 0.0 { off / length } else { off },
        not_finite: given
            .iter()
            .zip(right)
            .filter(|(g, r)| !g.is_finite() && r.is_finite())
            .count(),
    })
}

/// Comparisons as a table.
#[must_use]
pub fn table(all: &[Comparison]) -> String {
    let mut text = "    values    largest    max abs  relative L2  not finite  layer\n".to_owned();
    for c in all {
        text += &format!(
            "{:>10} {:>10.4} {:>10.2e} {:>12.2e} {:>11}  {}\n",
            c.values, c.largest, c.max_abs, c.relative_l2, c.not_finite, c.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_absolutely_and_relatively() {
        let found = compare("c", &[3.0, 4.5], &[3.0, 4.0]).expect("two each");
        assert_eq!((found.max_abs, found.largest, found.not_finite), (0.5, 4.0, 0));
        assert!((found.relative_l2 - 0.1).abs() < 1e-12);
        assert_eq!(compare("c", &[1.0], &[1.0, 2.0]), None);
        assert!(table(&[found]).contains("1.00e-1           0  c"));
    }

    #[test]
    fn a_value_that_is_no_number_is_counted_and_hides_nothing() {
        let found = compare("c", &[f32::NAN, 2.0, f32::INFINITY], &[1.0, 1.0, 1.0]).expect("three");
        assert_eq!((found.not_finite, found.max_abs), (2, 1.0));
        let zeros = compare("c", &[0.0], &[0.0]).expect("one");
        assert_eq!(zeros.relative_l2, 0.0);
    }
}
