//! Numbers for readers: four significant digits, with a prefix or a unit that fits.
//!
//! Every text of a report uses these functions, so that the terminal and the HTML file show the same digits.

/// Text in place of a number that does not exist.
pub const NONE: &str = "–";

/// Prefixes of counts and rates, with their names in words.
const PREFIXES: [(f64, &str, &str); 4] =
    [(1e9, " G", "billion "), (1e6, " M", "million "), (1e3, " k", "thousand "), (1.0, "", "")];

/// Units with parts and multiples: name in a report, size in the first unit of the list, and name in words.
type Family = &'static [(&'static str, f64, &'static str)];

const TIMES: Family = &[
    ("ns", 1e-9, "nanoseconds"),
    ("µs", 1e-6, "microseconds"),
    ("ms", 1e-3, "milliseconds"),
    ("s", 1.0, "seconds"),
];

const BINARY_SIZES: Family = &[
    ("bytes", 1.0, "bytes"),
    ("KiB", 1024.0, "kibibytes (1024 bytes)"),
    ("MiB", 1_048_576.0, "mebibytes (1024² bytes)"),
    ("GiB", 1_073_741_824.0, "gibibytes (1024³ bytes)"),
];

const BINARY_RATES: Family = &[
    ("KiB/s", 1024.0, "kibibytes per second"),
    ("MiB/s", 1_048_576.0, "mebibytes per second"),
    ("GiB/s", 1_073_741_824.0, "gibibytes per second"),
];

const DECIMAL_RATES: Family = &[
    ("kB/s", 1e3, "kilobytes per second"),
    ("MB/s", 1e6, "megabytes per second"),
    ("GB/s", 1e9, "gigabytes per second"),
];

/// The family of a unit, and the unit's size in it.
fn family(unit: &str) -> Option<(Family, f64)> {
    let unit = if unit == "us" { "µs" } else { unit };
    [TIMES, BINARY_SIZES, BINARY_RATES, DECIMAL_RATES].into_iter().find_map(|family| {
        let (_, size, _) = family.iter().find(|(name, _, _)| *name == unit)?;
        Some((family, *size))
    })
}

/// Rounds to four significant digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A number with four significant digits. Whole numbers have no fraction.
pub fn number(value: f64) -> String {
    let value = rounded(value);
    if !value.is_finite() {
        return NONE.into();
    }
    let (divisor, prefix, _) = prefix_of(value);
    if divisor == 1.0 && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    format!("{}{prefix}", digits(value / divisor))
}

/// A value with its unit if that has parts, such as `152.3 ms`; else without, such as `735.4 k`, because the unit is
/// above the table.
pub fn value(value: f64, unit: &str) -> String {
    let Some((family, size)) = family(unit) else { return number(value) };
    if !value.is_finite() {
        return NONE.into();
    }
    let value = rounded(value) * size;
    if value == 0.0 {
        return format!("0 {}", if unit == "us" { "µs" } else { unit });
    }
    let (name, size, _) = fitting(family, value);
    format!("{} {name}", digits(value / size))
}

/// A value with its unit in any case.
pub fn quantity(number: f64, unit: &str) -> String {
    let shown = value(number, unit);
    if family(unit).is_some() || shown == NONE { shown } else { format!("{shown} {unit}") }
}

/// A value with its unit, and two significant digits, for a sentence.
pub fn rough(value: f64, unit: &str) -> String {
    // Rounded in the unit that is shown: two digits of MiB are not two of GiB.
    let (value, unit) = match family(unit) {
        Some((family, size)) => {
            let (shown, shown_size, _) = fitting(family, value * size);
            (value * size / shown_size, shown)
        }
        None => (value, unit),
    };
    let two: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    let exact = quantity(two, unit);
    let (digits, unit) = exact.split_once(' ').unwrap_or((&exact, ""));
    let (mantissa, exponent) = digits.split_at(digits.find('e').unwrap_or(digits.len()));
    let mantissa =
        if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    format!("{mantissa}{exponent} {unit}").trim_end().into()
}

/// A ratio.
pub fn ratio(value: f64) -> String {
    let value = rounded(value);
    if value.is_finite() && value.abs() < 1e4 { digits(value) } else { number(value) }
}

/// A unit in words: `files per second` for `files/s`.
pub fn unit_in_words(unit: &str) -> String {
    let known = family(unit).and_then(|(family, size)| family.iter().find(|(_, of, _)| *of == size));
    match (known, unit.strip_suffix("/s")) {
        (Some((_, _, words)), _) => (*words).into(),
        (None, Some(what)) => format!("{what} per second"),
        (None, None) => unit.into(),
    }
}

/// A unit in words, and the direction: `files per second; more is better`.
pub fn unit_and_direction(words: &str, less_is_better: bool) -> String {
    format!("{words}; {} is better", if less_is_better { "less" } else { "more" })
}

/// The scale of an axis: numbers at its ticks are values divided by `divisor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// A value of 1 on the axis.
    pub divisor: f64,
    /// The unit in words: `thousand files per second`.
    pub words: String,
}

impl Scale {
    /// The scale of an axis that ends at a value.
    pub fn of(max: f64, unit: &str) -> Self {
        match family(unit) {
            Some((family, size)) => {
                let (_, fitting_size, words) = fitting(family, max * size);
                Self { divisor: fitting_size / size, words: words.into() }
            }
            None => {
                let (divisor, _, prefix) = prefix_of(max);
                Self { divisor, words: format!("{prefix}{}", unit_in_words(unit)) }
            }
        }
    }

    /// The text at a tick, without superfluous zeros.
    pub fn tick(&self, value: f64) -> String {
        let text = format!("{}", rounded(value / self.divisor));
        if text == "-0" { "0".into() } else { text }
    }
}

/// The largest unit of a family that is not larger than the value.
fn fitting(family: Family, value: f64) -> (&'static str, f64, &'static str) {
    let not_larger = |(_, size, _): &&(_, f64, _)| rounded(value.abs() / size) >= 1.0;
    family.iter().rev().find(not_larger).or(family.first()).copied().unwrap_or(("", 1.0, ""))
}

fn prefix_of(value: f64) -> (f64, &'static str, &'static str) {
    PREFIXES.into_iter().find(|(size, _, _)| value.abs() >= *size).unwrap_or((1.0, "", ""))
}

/// Four significant digits of a number without a prefix.
fn digits(value: f64) -> String {
    let value = rounded(value);
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude < -6 {
        return format!("{value:.3e}");
    }
    format!("{value:.decimals$}", decimals = usize::try_from(3 - magnitude).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        let cases = [
            (735_432.1, "735.4 k"),
            (999_960.0, "1.000 M"),
            (55_010.0, "55.01 k"),
            (334.21, "334.2"),
            (42.0, "42"),
            (1.5, "1.500"),
            (0.012_341, "0.01234"),
            (0.0, "0"),
            (-1234.0, "-1.234 k"),
            (3e9, "3.000 G"),
            (f64::NAN, NONE),
            (f64::INFINITY, NONE),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn times_and_sizes_choose_their_unit() {
        assert_eq!(value(0.1523, "s"), "152.3 ms");
        assert_eq!(value(18.94, "s"), "18.94 s");
        assert_eq!(value(1250.0, "us"), "1.250 ms");
        assert_eq!(value(0.999_99, "us"), "1.000 µs");
        assert_eq!(value(0.5, "ns"), "0.5000 ns");
        assert_eq!(value(2048.0, "MiB"), "2.000 GiB");
        assert_eq!(value(0.0, "us"), "0 µs");
        assert_eq!(value(512.0, "MB/s"), "512.0 MB/s");
        assert_eq!(value(f64::NAN, "s"), NONE);
        assert_eq!(quantity(1e6, "commits/s"), "1.000 M commits/s");
        assert_eq!(quantity(1.0, "s"), "1.000 s");
    }

    #[test]
    fn sentences_have_two_significant_digits() {
        let cases = [
            (27.31, "s", "27 s"),
            (0.863, "s", "860 ms"),
            (0.9996, "s", "1 s"),
            (735_432.0, "files/s", "740 k files/s"),
            // It was rounded to 2,000 MiB, which are 1.953 GiB.
            (1990.0, "MiB", "1.9 GiB"),
            (1020.0, "MiB", "1000 MiB"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(rough(value, unit), text);
        }
        assert_eq!(rough(0.0316, ""), "0.032");
        assert_eq!(rough(100.4, ""), "100");
        assert_eq!(rough(1.2e-10, ""), "1.2e-10");
        assert_eq!(rough(2e-10, ""), "2e-10");
    }

    #[test]
    fn ratios() {
        assert_eq!(ratio(13.3692), "13.37");
        assert_eq!(ratio(2.0), "2.000");
        assert_eq!(ratio(0.09268), "0.09268");
        assert_eq!(ratio(123_456.0), "123.5 k");
    }

    #[test]
    fn axes_are_named_in_words() {
        let rate = Scale::of(785_000.0, "files/s");
        assert_eq!(
            (rate.words.as_str(), rate.tick(200_000.0).as_str()),
            ("thousand files per second", "200")
        );
        let time = Scale::of(0.159, "s");
        assert_eq!((time.words.as_str(), time.tick(0.05).as_str()), ("milliseconds", "50"));
        assert_eq!(unit_in_words("files/s"), "files per second");
        assert_eq!(unit_in_words("us"), "microseconds");
        assert_eq!(unit_in_words("instructions"), "instructions");
    }
}
