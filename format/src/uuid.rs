//! UUIDs as text.

use std::fmt;

/// Displays a UUID as 8-4-4-4-12 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UuidText(pub [u8; 16]);

impl fmt::Display for UuidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Parses a UUID of 32 hexadecimal digits with or without dashes.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let well_formed = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| well_formed);
    number.map(u128::to_be_bytes)
}

/// Builds a version 4 UUID (RFC 9562) from 16 random bytes.
pub fn of_random(mut bytes: [u8; 16]) -> [u8; 16] {
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_parse_and_print_equally() {
        let text = "01234567-89ab-4def-8123-456789abcdef";
        let uuid = parse(text).unwrap();
        assert_eq!(UuidText(uuid).to_string(), text);
        assert_eq!(of_random(uuid), uuid);
        assert_eq!(UuidText(of_random([0xff; 16])).to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        for wrong in
            ["", "0123", "g1234567-89ab-4def-8123-456789abcdef", "+1234567-89ab-4def-8123-456789abcdef"]
        {
            assert_eq!(parse(wrong), None);
        }
    }
}
