//! Seeds: UUIDs and inode generations of a volume are derived from 16 bytes.

use sha2::{Digest as _, Sha256};

/// A seed.
pub type Seed = [u8; 16];

/// A seed from a text.
pub fn from_text(text: &str) -> Seed {
    first_half(Sha256::digest(text.as_bytes()).into())
}

/// A random seed.
///
/// # Errors
/// Those of the system.
pub fn random() -> std::io::Result<Seed> {
    base::random::bytes_from_machine()
}

/// Derives another seed, for a purpose.
pub fn derived(seed: Seed, purpose: &str) -> Seed {
    first_half(Sha256::new().chain_update(seed).chain_update(purpose).finalize().into())
}

fn first_half(digest: [u8; 32]) -> Seed {
    let mut seed = Seed::default();
    seed.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    seed
}
