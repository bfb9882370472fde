//! Inference of numbers with commas: `1.234,56` and `1,234.56`. The decoders read them as text, since a
//! comma is a decimal point to one writer and a group separator to another; this module collects the evidence
//! of the values.

/// Evidence that the values of a column are numbers with commas.
///
/// ```
/// use tidemill_text::infer::CommaNumbers;
///
/// let mut commas = CommaNumbers::default();
/// ["1.234,5", "7", "-0,25"].iter().for_each(|value| commas.add_value(value));
/// assert_eq!(commas.conversion_sql("price"), ["replace(replace(price, '.', ''), ',', '.')::DOUBLE"]);
/// commas.add_value("n/a");
/// assert!(commas.conversion_sql("price").is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommaNumbers {
    /// True if some value has a comma.
    has_comma: bool,
    /// True if every comma may be a decimal point.
    can_be_decimal_point: bool,
    /// True if every comma may separate thousands.
    can_be_thousands: bool,
    /// True if some value has points, which separate thousands if commas are decimal points.
    has_points: bool,
    /// True if some value has a decimal point, if commas separate thousands.
    has_fraction: bool,
}

impl Default for CommaNumbers {
    fn default() -> Self {
        Self {
            has_comma: false,
            can_be_decimal_point: true,
            can_be_thousands: true,
            has_points: false,
            has_fraction: false,
        }
    }
}

impl CommaNumbers {
    /// Adds a value that is not null.
    pub fn add_value(&mut self, value: &str) {
        if self.can_be_decimal_point || self.can_be_thousands {
            self.merge(&Self::from_value(value));
        }
    }

    /// Merges the evidence of other values.
    pub fn merge(&mut self, other: &Self) {
        self.has_comma |= other.has_comma;
        self.can_be_decimal_point &= other.can_be_decimal_point;
        self.can_be_thousands &= other.can_be_thousands;
        self.has_points |= other.has_points;
        self.has_fraction |= other.has_fraction;
    }

    /// Returns the SQL expressions that read such a column as numbers: none if it has no such numbers, two if
    /// commas may be either.
    #[must_use]
    pub fn conversion_sql(&self, column: &str) -> Vec<String> {
        if !self.has_comma {
            return Vec::new();
        }
        let point = self.can_be_decimal_point.then(|| match self.has_points {
            true => format!("replace(replace({column}, '.', ''), ',', '.')::DOUBLE"),
            false => format!("replace({column}, ',', '.')::DOUBLE"),
        });
        let number = if self.has_fraction { "DOUBLE" } else { "BIGINT" };
        let thousands =
            self.can_be_thousands.then(|| format!("replace({column}, ',', '')::{number}"));
        point.into_iter().chain(thousands).collect()
    }

    fn from_value(value: &str) -> Self {
        let number = value.strip_prefix('-').unwrap_or(value);
        Self {
            has_comma: number.contains(','),
            can_be_decimal_point: is_grouped_number(number, '.', ','),
            can_be_thousands: is_grouped_number(number, ',', '.'),
            has_points: number.contains('.'),
            has_fraction: number.contains('.'),
        }
    }
}

/// Returns whether a text is digits, optionally in groups, with an optional fraction.
fn is_grouped_number(text: &str, group: char, point: char) -> bool {
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = match text.split_once(point) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let mut groups = whole.split(group);
    let first = groups.next().unwrap_or_default();
    let others = groups.clone().count();
    are_digits(first)
        && (others == 0 || first.len() <= 3)
        && groups.all(|digits| digits.len() == 3 && are_digits(digits))
        && fraction.is_none_or(are_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning_of_commas_is_inferred() {
        const POINT: &str = "replace(x, ',', '.')::DOUBLE";
        const GROUPS: &str = "replace(replace(x, '.', ''), ',', '.')::DOUBLE";
        const WHOLE: &str = "replace(x, ',', '')::BIGINT";
        const FRACTION: &str = "replace(x, ',', '')::DOUBLE";
        for (values, expected) in [
            (&["1,5", "2"][..], &[POINT][..]),
            (&["-1,25", "1000,5"], &[POINT]),
            (&["1.234,5", "7"], &[GROUPS]),
            (&["1.234.567", "0,5"], &[GROUPS]),
            (&["1,234", "5"], &[POINT, WHOLE]),
            (&["1,234", "1,234,567"], &[WHOLE]),
            (&["1,234.5", "12"], &[FRACTION]),
            (&["1234,567"], &[POINT]),
            (&["1,2,3"], &[]),
            (&["1,5", "1.5"], &[]),
            (&["1", "2.5"], &[]),
            (&["1,", "2"], &[]),
            (&[",5"], &[]),
            (&["1,5 kg"], &[]),
            (&["1,5", ""], &[]),
            (&["10.0.0.1"], &[]),
            (&["٣,٥"], &[]),
            (&[], &[]),
        ] {
            let mut commas = CommaNumbers::default();
            values.iter().for_each(|value| commas.add_value(value));
            assert_eq!(commas.conversion_sql("x"), expected, "{values:?}");
            // Merging the evidence of two parts gives the same.
            for cut in 0..values.len() {
                let (mut first, mut second) = (CommaNumbers::default(), CommaNumbers::default());
                values[..cut].iter().for_each(|value| first.add_value(value));
                values[cut..].iter().for_each(|value| second.add_value(value));
                first.merge(&second);
                assert_eq!(first.conversion_sql("x"), expected, "{values:?}");
            }
        }
    }
}
