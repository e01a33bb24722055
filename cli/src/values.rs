//! Values of extended attributes: text, `0x` and hexadecimal, `0s` and base64.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes a value of the command line.
pub fn decode(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        [b'0', b's' | b'S', letters @ ..] => base64(letters),
        [b'"', inner @ .., b'"'] => Ok(unescape(inner)),
        _ => Ok(unescape(text)),
    }
}

fn hexadecimal(digits: &[u8]) -> anyhow::Result<Vec<u8>> {
    let digit = |byte: &u8| {
        char::from(*byte).to_digit(16).context("invalid hexadecimal digit in a value that begins with 0x")
    };
    if !digits.len().is_multiple_of(2) {
        bail!("odd number of digits in a value that begins with 0x");
    }
    digits
        .chunks(2)
        .map(|pair| pair.iter().try_fold(0, |byte, letter| Ok((byte << 4) | digit(letter)? as u8)))
        .collect()
}

fn base64(letters: &[u8]) -> anyhow::Result<Vec<u8>> {
    let letters: Vec<u8> = letters.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let end = letters.iter().position(|byte| *byte == b'=').unwrap_or(letters.len());
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for group in letters.get(..end).unwrap_or_default().chunks(4) {
        let mut bits = 0u32;
        for letter in group {
            let value = BASE64.iter().position(|digit| digit == letter);
            bits = bits << 6 | value.context("invalid base64 in a value that begins with 0s")? as u32;
        }
        let missing = 4 - group.len() as u32;
        if missing == 3 {
            bail!("truncated base64 in a value that begins with 0s");
        }
        bits <<= 6 * missing;
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend(whole.iter().take(3 - missing as usize));
    }
    Ok(bytes)
}

/// Decodes backslash escapes: `\ooo` is an octal byte; any other character stands for itself.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = more;
            }
            [b'\\', other, more @ ..] | [other, more @ ..] => {
                bytes.push(*other);
                rest = more;
            }
            [] => return bytes,
        }
    }
}

/// Encodes a value as `getfattr` does: as text if it is text, else in base64.
pub fn encode(value: &[u8]) -> String {
    let printable = |byte: &u8| (b' '..=b'~').contains(byte) || matches!(byte, b'\n' | b'\t');
    if std::str::from_utf8(value).is_ok() && value.iter().all(|byte| printable(byte) || *byte >= 0x80) {
        let mut text = String::from("\"");
        for letter in String::from_utf8_lossy(value).chars() {
            match letter {
                '"' | '\\' => text.extend(['\\', letter]),
                '\n' | '\t' => {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\\{:03o}", u32::from(letter));
                }
                _ => text.push(letter),
            }
        }
        text.push('"');
        return text;
    }
    let mut text = String::from("0s");
    for group in value.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for n in 0..4 {
            let letter = BASE64.get((bits >> (18 - 6 * n) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if n <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_text_hexadecimal_and_base64() {
        let decoded = |text: &str| decode(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(decoded("plain text"), Ok(b"plain text".to_vec()));
        assert_eq!(decoded("a\\\\b\\000\\377"), Ok(b"a\\b\0\xff".to_vec()));
        assert_eq!(decoded("\"quoted\""), Ok(b"quoted".to_vec()));
        assert_eq!(decoded("0x00fF"), Ok(vec![0, 255]));
        assert_eq!(decoded("0sAP8="), Ok(vec![0, 255]));
        assert!(decoded("0x0").is_err() && decoded("0xzz").is_err());
        assert!(decoded("0sA").is_err() && decoded("0s????").is_err());
    }

    #[test]
    fn decodes_what_it_encodes() {
        for value in [
            &b""[..],
            b"text",
            b"a \"quote\" and \\ and\nmore",
            "\u{e9}t\u{e9}".as_bytes(),
            &[0],
            &[0, 1],
            &[0, 1, 255],
        ] {
            let text = encode(value);
            assert_eq!(
                decode(text.as_bytes()).map_err(|error| error.to_string()),
                Ok(value.to_vec()),
                "{text}"
            );
        }
        assert_eq!(encode(b"one"), "\"one\"");
        assert_eq!(encode(&[0, 255]), "0sAP8=");
    }
}
