//! Numbers that are written with commas: `1.234,56` and `1,234.56`. They are read as text, since a
//! comma is a point to one writer and nothing to another; what the values say of it is collected here.

/// What the values of a column have in common as numbers with commas.
///
/// ```
/// use tidemill_text::infer::Commas;
///
/// let mut commas = Commas::default();
/// ["1.234,5", "7", "-0,25"].iter().for_each(|value| commas.add(value));
/// assert_eq!(commas.reading("price"), ["replace(replace(price, '.', ''), ',', '.')::DOUBLE"]);
/// commas.add("n/a");
/// assert!(commas.reading("price").is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommaNumbers {
    /// Whether some value has a comma.
    has_comma: bool,
    /// Whether every comma may be a decimal point.
    can_be_decimal_point: bool,
    /// Whether every comma may separate thousands.
    can_be_thousands: bool,
    /// Whether some value has points, which separate thousands if commas are decimal points.
    has_points: bool,
    /// Whether some value has a decimal point, if commas separate thousands.
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
    /// Looks at a value that is not null.
    pub fn add_value(&mut self, value: &str) {
        if self.can_be_decimal_point || self.can_be_thousands {
            self.merge(&Self::from_value(value));
        }
    }

    /// What both have in common.
    pub fn merge(&mut self, other: &Self) {
        self.has_comma |= other.has_comma;
        self.can_be_decimal_point &= other.can_be_decimal_point;
        self.can_be_thousands &= other.can_be_thousands;
        self.has_points |= other.has_points;
        self.has_fraction |= other.has_fraction;
    }

    /// What reads such a column as numbers, in SQL: nothing where it has no such numbers, two where
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

/// Whether it is digits, in groups or not, and a fraction or none.
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
            // In two parts it is the same.
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
