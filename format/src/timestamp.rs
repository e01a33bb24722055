//! Times of inodes. Two forms in the same eight bytes: seconds and nanoseconds as two signed 32-bit numbers, or, where
//! the inode says `bigtime`, nanoseconds since the smallest time of the old form (`xfs_format.h`).

use crate::ondisk::U64;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after that second, below 10^9.
    pub nanoseconds: u32,
}

const NANOSECONDS: u64 = 1_000_000_000;
/// The bigtime epoch, in seconds relative to 1970: the smallest 32-bit time.
const BIGTIME_EPOCH: i64 = i32::MIN as i64;

impl Timestamp {
    /// Decodes either form. An old-form nanosecond field out of range, which only damage can make, is clamped.
    pub fn decode(raw: U64, bigtime: bool) -> Self {
        let raw = raw.get();
        if bigtime {
            let seconds = (raw / NANOSECONDS) as i64 + BIGTIME_EPOCH;
            Self { seconds, nanoseconds: (raw % NANOSECONDS) as u32 }
        } else {
            let nanoseconds = (raw as u32).min(NANOSECONDS as u32 - 1);
            Self { seconds: i64::from((raw >> 32) as i32), nanoseconds }
        }
    }

    /// Whether the stored form is one that a writer can have made.
    pub fn is_valid(raw: U64, bigtime: bool) -> bool {
        bigtime || (raw.get() as u32 as i32) < NANOSECONDS as i32 && (raw.get() as u32 as i32) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_meet_at_the_old_epoch() {
        let old = Timestamp::decode(U64::new(0x8000_0000_0000_0005), false);
        assert_eq!(old, Timestamp { seconds: i64::from(i32::MIN), nanoseconds: 5 });
        assert_eq!(Timestamp::decode(U64::new(5), true), old);
        assert_eq!(Timestamp::decode(U64::MAX_VALUE, true).seconds, 16_299_260_425);
    }
}
