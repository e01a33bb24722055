//! Digests of blobs, as descriptors of OCI images have them (OCI image specification 1.1, "Digests").

use std::io::{self, Read};

use read::manifest::hex;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

/// Size and digest of a blob, from its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// `sha256` or `sha512`.
    algorithm: &'static str,
    hex: String,
    size: u64,
}

impl Expected {
    /// Parses `ALGORITHM:HEX`; the size is in bytes.
    ///
    /// # Errors
    /// A message about the digest.
    pub fn new(digest: &str, size: u64) -> Result<Self, String> {
        let (algorithm, hex) = digest.split_once(':').unwrap_or(("", ""));
        let (algorithm, length) = match algorithm {
            "sha256" => ("sha256", 64),
            "sha512" => ("sha512", 128),
            _ => return Err(format!("a digest that is neither SHA-256 nor SHA-512: {digest:?}")),
        };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match hex.len() == length && hex.bytes().all(is_digit) {
            true => Ok(Self { algorithm, hex: hex.into(), size }),
            false => Err(format!("invalid digest: {digest:?}")),
        }
    }

    /// The path of its blob below the blobs of a layout.
    pub fn place(&self) -> [&str; 2] {
        [self.algorithm, &self.hex]
    }
}

/// A stream that ends with an error if size or digest are wrong.
pub struct Verified<R> {
    source: R,
    expected: Expected,
    /// `None` when it was verified.
    hash: Option<Box<dyn DynDigest + Send>>,
    read: u64,
}

impl<R: Read> Verified<R> {
    /// Starts at the first byte.
    pub fn new(source: R, expected: Expected) -> Self {
        let hash: Box<dyn DynDigest + Send> = match expected.algorithm {
            "sha512" => Box::<Sha512>::default(),
            _ => Box::<Sha256>::default(),
        };
        Self { source, expected, hash: Some(hash), read: 0 }
    }

    fn verify(&mut self) -> io::Result<()> {
        let Some(hash) = self.hash.take() else { return Ok(()) };
        let found = hex(&hash.finalize());
        if self.read != self.expected.size {
            return Err(self.wrong_size());
        }
        match found == self.expected.hex {
            true => Ok(()),
            false => Err(damaged(format!("wrong digest: {found}, expected {}", self.expected.hex))),
        }
    }

    fn wrong_size(&self) -> io::Error {
        let Self { read, expected, .. } = self;
        damaged(format!("wrong size: {read} bytes read, expected {}", expected.size))
    }
}

fn damaged(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        let bytes = buf.get(..read).unwrap_or_default();
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.read += read as u64;
        if self.read > self.expected.size {
            return Err(self.wrong_size());
        }
        if read == 0 && !buf.is_empty() {
            self.verify()?;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "abc", from FIPS 180-4.
    const SHA256: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const SHA512: &str = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
        2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";

    fn read(bytes: &[u8], digest: &str, size: u64) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Verified::new(bytes, Expected::new(digest, size).unwrap()).read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn only_what_was_promised_is_read_to_its_end() {
        for digest in [SHA256, SHA512] {
            assert_eq!(read(b"abc", digest, 3).unwrap(), b"abc");
            for (bytes, size) in [(&b"abd"[..], 3), (b"abc", 2), (b"abc", 4), (b"ab", 3), (b"abcd", 3)] {
                read(bytes, digest, size).unwrap_err();
            }
        }
    }

    #[test]
    fn digests_are_hexadecimal_and_of_known_algorithms() {
        let refused =
            ["", "sha256", "sha256:", "sha256:../../secret", "md5:aa", &SHA256.to_uppercase(), &SHA256[..70]];
        for digest in refused {
            Expected::new(digest, 0).unwrap_err();
        }
        assert_eq!(Expected::new(SHA256, 3).unwrap().place()[1], &SHA256[7..]);
    }
}
