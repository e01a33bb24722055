//! Little-endian fields, checksums and compression of what is stored.

use crc_fast::{CrcAlgorithm, Digest};
use ruzstd::decoding::FrameDecoder;

use crate::error::Damage;

/// Appends fields.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What was appended.
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn raw(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// A text of at most 65,535 bytes; a longer one is cut off.
    pub fn text(&mut self, value: &str) {
        let mut length = value.len().min(usize::from(u16::MAX));
        while !value.is_char_boundary(length) {
            length -= 1;
        }
        self.u16(length as u16);
        self.raw(value.as_bytes().get(..length).unwrap_or_default());
    }

    /// Replaces four bytes that were appended before.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Takes fields from untrusted bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    /// What is decoded, for errors.
    what: &'static str,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub fn damage(&self, reason: &'static str) -> Damage {
        Damage { what: self.what, reason }
    }

    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| self.damage("it is too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let too_short = self.damage("it is too short");
        self.raw(N)?.try_into().map_err(|_| too_short)
    }

    pub fn u8(&mut self) -> Result<u8, Damage> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, Damage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Result<String, Damage> {
        let length = usize::from(self.u16()?);
        let bytes = self.raw(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.damage("a name in it is not UTF-8"))
    }

    /// A number of items that follow, each of at least `size` bytes: so that no more memory is reserved for them than
    /// the bytes that are there justify.
    pub fn count(&mut self, size: usize) -> Result<usize, Damage> {
        let count = self.u32()? as usize;
        match count.checked_mul(size) {
            Some(length) if length <= self.rest.len() => Ok(count),
            _ => Err(self.damage("it has fewer items than it says")),
        }
    }

    pub fn end(&self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damage("it is too long")) }
    }
}

/// CRC32C of several parts.
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// Compresses, if that makes it shorter.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::compress(bytes, 1).ok().filter(|packed| packed.len() < bytes.len())
}

/// Decompresses to exactly `length` bytes.
pub fn decompress(packed: &[u8], length: usize, what: &'static str) -> Result<Vec<u8>, Damage> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(length.max(1 << 10) as u64);
    let mut bytes = vec![0; length];
    match decoder.decode_all(packed, &mut bytes) {
        Ok(decoded) if decoded == length => Ok(bytes),
        Ok(_) => Err(Damage { what, reason: "it decompresses to another length" }),
        Err(_) => Err(Damage { what, reason: "it cannot be decompressed" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_decompressed_and_damage_is_an_error() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 100) as u8).collect();
        let packed = compress(&bytes).unwrap();
        assert!(packed.len() < bytes.len() / 10);
        assert_eq!(decompress(&packed, bytes.len(), "x").unwrap(), bytes);
        assert!(decompress(&packed, bytes.len() - 1, "x").is_err());
        assert!(decompress(&packed, bytes.len() + 1, "x").is_err());
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x55;
            let _ = decompress(&damaged, bytes.len(), "x");
            let _ = decompress(&packed[..at], bytes.len(), "x").unwrap_err();
        }
    }

    /// A text that was cut off within a character could not be read again.
    #[test]
    fn a_long_text_is_cut_off_between_characters() {
        let mut encoder = Encoder::default();
        encoder.text(&"ä".repeat(40_000));
        assert_eq!(Decoder::new(&encoder.bytes, "x").text().unwrap(), "ä".repeat(32_767));
    }

    #[test]
    fn counts_beyond_the_bytes_are_refused() {
        let mut encoder = Encoder::default();
        encoder.u32(3);
        encoder.raw(&[0; 8]);
        assert!(Decoder::new(&encoder.bytes, "x").count(4).is_err());
        assert_eq!(Decoder::new(&encoder.bytes, "x").count(2).unwrap(), 3);
    }
}
