//! Quantiles of Student's t distribution, for any real number of degrees of freedom from 1 on.
//!
//! The tail of t at ν degrees is I_{ν/(ν+t²)}(ν/2, 1/2) / 2, the regularized incomplete beta function (DLMF
//! 8.17). It is evaluated by its continued fraction (DLMF 8.17.22) in the modified Lentz way, and inverted by
//! bisection. A call takes about 30 µs, so repeated callers cache the result.

use std::f64::consts::PI;

use libm::log;

/// Returns the t for which Student's distribution with `degrees` of freedom lies between −t and t with
/// probability `confidence`.
///
/// The relative error is at most 1e-9. Degrees below 1 count as 1, not-a-number and infinity as infinitely
/// many; a confidence of 0 or less gives 0, of 1 or more infinity.
///
/// ```
/// use tidemill_sampling::student_t_quantile;
///
/// assert!((student_t_quantile(0.95, 10.0) - 2.228_138_852).abs() < 1e-8);
/// ```
pub fn student_t_quantile(confidence: f64, degrees: f64) -> f64 {
    // With more degrees, t differs from the normal distribution by less than a millionth, and the fraction is
    // slow.
    let degrees = if degrees.is_nan() { 1e7 } else { degrees.clamp(1.0, 1e7) };
    let outside = 1.0 - confidence;
    if outside >= 1.0 {
        return 0.0;
    }
    if outside.is_nan() || outside <= 0.0 {
        return f64::INFINITY;
    }
    let outside_of = |t: f64| incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5);
    let (mut low, mut high) = (0.0, 1.0);
    while outside_of(high) > outside && high < 1e300 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if outside_of(middle) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the regularized incomplete beta function I_x(a, b).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front =
        libm::exp(ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * log(x) + b * log(1.0 - x));
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_continued_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_continued_fraction(1.0 - x, b, a) / b
    }
}

/// Returns the continued fraction of I_x(a, b), which converges fast for x < (a + 1) / (a + b + 2).
fn beta_continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let held = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / held(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..20_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / held(1.0 + even * d);
        c = held(1.0 + even / c);
        result *= d * c;
        d = 1.0 / held(1.0 + odd * d);
        c = held(1.0 + odd / c);
        let factor = d * c;
        result *= factor;
        if (factor - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Returns ln Γ(x) for x > 0, by Lanczos's approximation (g = 7, nine terms, Godfrey's coefficients).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return log(PI / libm::sin(PI * x)) - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    for (term, number) in TERMS.iter().zip(1_u32..) {
        sum += term / (x + f64::from(number));
    }
    let t = x + 7.5;
    0.5 * log(2.0 * PI) + (x + 0.5) * log(t) - t + log(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let check = |confidence: f64, degrees: f64, expect: f64| {
            let t = student_t_quantile(confidence, degrees);
            assert!((t / expect - 1.0).abs() < 1e-6, "{confidence} {degrees}: {t}, not {expect}");
        };
        check(0.95, 1.0, 12.706_204_736);
        check(0.95, 2.0, 4.302_652_730);
        check(0.95, 3.0, 3.182_446_305);
        check(0.95, 5.0, 2.570_581_836);
        check(0.95, 10.0, 2.228_138_852);
        check(0.95, 30.0, 2.042_272_456);
        check(0.95, 100.0, 1.983_971_519);
        check(0.95, 1e9, 1.959_963_985);
        check(0.99, 1.0, 63.656_741_162);
        check(0.99, 4.0, 4.604_094_871);
        check(0.99, 20.0, 2.845_339_710);
        check(0.999, 10.0, 4.586_893_859);
        check(0.9, 7.0, 1.894_578_605);
        check(0.5, 1.0, 1.0);
    }

    /// With one and two degrees there is a closed form.
    #[test]
    fn quantiles_are_those_of_the_closed_forms() {
        for confidence in [0.01, 0.3, 0.8, 0.95, 0.999, 0.999_999] {
            let one = (confidence * PI / 2.0).tan();
            assert!((student_t_quantile(confidence, 1.0) / one - 1.0).abs() < 1e-8);
            let two = confidence * (2.0 / (1.0 - confidence * confidence)).sqrt();
            assert!((student_t_quantile(confidence, 2.0) / two - 1.0).abs() < 1e-8);
        }
    }

    #[test]
    fn fractions_of_a_degree_lie_between() {
        let mut last = f64::INFINITY;
        for tenths in 10..500 {
            let t = student_t_quantile(0.95, f64::from(tenths) / 10.0);
            assert!(t < last);
            last = t;
        }
    }

    #[test]
    fn arguments_out_of_range_are_clamped() {
        assert_eq!(student_t_quantile(0.0, 5.0), 0.0);
        assert_eq!(student_t_quantile(1.0, 5.0), f64::INFINITY);
        assert_eq!(student_t_quantile(0.95, 0.2), student_t_quantile(0.95, 1.0));
        assert_eq!(student_t_quantile(0.95, f64::INFINITY), student_t_quantile(0.95, 1e7));
    }
}
