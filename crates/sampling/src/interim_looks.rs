//! The schedule of looks at an answer's precision, and the confidence of each look.
//!
//! A run that looks repeatedly and stops at the first interval that is narrow enough stops too often when the
//! interval happens to be wrong: each look is another chance. So looks are few (each after half as many
//! splits again), and the error probability is spent over them: look `k` gets 6/(π²k²) of it, whose sum over
//! all k is 1. By Bonferroni's inequality, the probability that any look's interval misses the answer is at
//! most 1 − confidence, whenever the run stops.

use std::f64::consts::PI;

/// Returns the number of splits after which look number `look` is taken, counted from 1: 16, 24, 36, 54, 81,
/// 122, …
///
/// ```
/// use tidemill_sampling::splits_before_look;
///
/// assert_eq!([1, 2, 3, 4, 5, 6].map(splits_before_look), [16, 24, 36, 54, 81, 122]);
/// ```
pub fn splits_before_look(look: u32) -> u64 {
    let mut splits = 16_u64;
    // Halves are rounded up at each step.
    for _ in 1..look {
        let Some(next) = splits.checked_add(splits.div_ceil(2)) else { return u64::MAX };
        splits = next;
    }
    splits
}

/// Returns the confidence for the intervals of look number `look`, counted from 1, so that with probability
/// `confidence` those of all looks contain the answer.
///
/// ```
/// use tidemill_sampling::look_confidence;
///
/// assert!((look_confidence(1, 0.95) - 0.9696).abs() < 1e-4);
/// ```
pub fn look_confidence(look: u32, confidence: f64) -> f64 {
    let number = f64::from(look.max(1));
    1.0 - (1.0 - confidence) * 6.0 / (PI * number).powi(2)
}

/// Returns the maximum share of all splits that contain any one given group not seen in `splits_read` splits,
/// with probability `confidence`: 1 − (1 − confidence)^(1/splits_read), about 3/n at 95 % (the rule of
/// three).
///
/// The share does not bound all unseen groups together, nor the number of their rows.
///
/// ```
/// use tidemill_sampling::unseen_group_share_max;
///
/// assert!((unseen_group_share_max(100, 0.95) - 0.0295).abs() < 1e-4);
/// ```
pub fn unseen_group_share_max(splits_read: u64, confidence: f64) -> f64 {
    if splits_read == 0 {
        return 1.0;
    }
    let share = -libm::expm1(libm::log1p(-confidence) / splits_read as f64);
    share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_probability_spent_over_all_looks_is_the_allowed_one() {
        let spent: f64 = (1..100_000).map(|look| 1.0 - look_confidence(look, 0.95)).sum();
        assert!(spent <= 0.05 && spent > 0.049_99, "{spent}");
    }

    #[test]
    fn looks_grow_by_half() {
        for look in 1..60 {
            let (splits, next) = (splits_before_look(look), splits_before_look(look + 1));
            assert!(next >= splits + splits / 2 && next <= splits + splits / 2 + 1);
        }
        assert_eq!(splits_before_look(0), 16);
        assert_eq!(splits_before_look(1_000), u64::MAX);
    }

    #[test]
    fn an_unseen_group_follows_the_rule_of_three() {
        for splits in [100, 1_000, 1_000_000] {
            let share = unseen_group_share_max(splits, 0.95) * splits as f64;
            assert!((share - 3.0).abs() < 0.05, "{share}");
        }
        assert_eq!(unseen_group_share_max(0, 0.95), 1.0);
        assert!((unseen_group_share_max(1, 0.95) - 0.95).abs() < 1e-12);
    }
}
