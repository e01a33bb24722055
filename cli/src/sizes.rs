//! Sizes in bytes: parsing and formatting.

pub use base::sizes::parse;

/// A size as in `ls -h`: at most three digits and a letter, rounded up.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1u64 << 10;
    let mut letters = "KMGTPE".chars();
    let mut letter = letters.next().unwrap_or('K');
    for next in letters {
        // 1023.5K is 1.0M: a size that would round up to four digits is shown in the next unit.
        if bytes.div_ceil(unit) < 1024 {
            break;
        }
        unit <<= 10;
        letter = next;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
    if tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", bytes.div_ceil(unit))
    }
}

/// A size with its unit: `1.0 GiB`.
pub fn with_unit(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut name = "bytes";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        name = next;
    }
    if name == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {name}") }
}

/// Appends a number in decimal, right-aligned in `width`.
pub fn push_number(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    out.resize(out.len() + width.saturating_sub(digits.len()), b' ');
    out.extend_from_slice(digits);
}

/// Number of decimal digits.
pub fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_human_readable_sizes_as_ls_does() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024, "1023K"),
            (1023 * 1024 + 1, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn right_aligns_numbers() {
        let mut out = Vec::new();
        push_number(&mut out, 0, 3);
        push_number(&mut out, u64::MAX, 0);
        push_number(&mut out, 7, 22);
        assert_eq!(out, b"  018446744073709551615                     7");
        assert_eq!([digits(0), digits(9), digits(10), digits(u64::MAX)], [1, 1, 2, 20]);
    }
}
