//! Parsing of sizes in bytes.

/// Units of 1024, as in `ls -h` and the XFS tools; `s` is a sector.
const UNITS: &[(char, u64)] = &[
    ('s', 512),
    ('k', 1 << 10),
    ('m', 1 << 20),
    ('g', 1 << 30),
    ('t', 1 << 40),
    ('p', 1 << 50),
    ('e', 1 << 60),
];

/// Parses a number of bytes, decimal or hexadecimal after `0x`, with an optional unit.
///
/// # Errors
/// A description of the error in the text.
pub fn parse(text: &str) -> Result<u64, String> {
    let refuse =
        || format!("`{text}` is not a size: give a number of bytes, optionally with suffix s, k, m, g or t");
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| refuse());
    }
    let last = text.chars().next_back().unwrap_or(' ').to_ascii_lowercase();
    let unit = UNITS.iter().find(|(letter, _)| *letter == last);
    let digits = if unit.is_some() { text.get(..text.len() - 1).unwrap_or("") } else { text };
    let number: u64 = digits.parse().map_err(|_| refuse())?;
    number.checked_mul(unit.map_or(1, |(_, bytes)| *bytes)).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_units() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("2048s"), Ok(1 << 20));
        assert_eq!(parse("1M"), Ok(1 << 20));
        assert_eq!(parse("0x10"), Ok(16));
        assert!(
            parse("").is_err() && parse("k").is_err() && parse("-1").is_err() && parse("99999999e").is_err()
        );
    }
}
