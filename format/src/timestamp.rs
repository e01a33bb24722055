//! Inode timestamps. Two encodings in eight bytes: seconds and nanoseconds as signed 32-bit numbers or, if the inode
//! has `bigtime`, nanoseconds since the minimum of the first encoding (`xfs_format.h`).

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
/// The bigtime epoch in seconds relative to 1970: the smallest 32-bit time.
const BIGTIME_EPOCH: i64 = i32::MIN as i64;

impl Timestamp {
    /// Decodes either encoding. An invalid 32-bit nanosecond field is clamped.
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

    /// Encodes in either encoding. A time out of range becomes the nearest that can be stored.
    pub fn encode(self, bigtime: bool) -> U64 {
        let fraction = self.nanoseconds.min(NANOSECONDS as u32 - 1);
        if bigtime {
            let since = i128::from(self.seconds) - i128::from(BIGTIME_EPOCH);
            let total = since * i128::from(NANOSECONDS) + i128::from(fraction);
            return U64::new(total.clamp(0, i128::from(u64::MAX)) as u64);
        }
        let (seconds, fraction) = match i32::try_from(self.seconds) {
            Ok(seconds) => (seconds, fraction),
            Err(_) if self.seconds < 0 => (i32::MIN, 0),
            Err(_) => (i32::MAX, NANOSECONDS as u32 - 1),
        };
        U64::new(u64::from(seconds as u32) << 32 | u64::from(fraction))
    }

    /// Whether the stored value is one that a correct writer produces.
    pub fn is_valid(raw: U64, bigtime: bool) -> bool {
        bigtime || (raw.get() as u32 as i32) < NANOSECONDS as i32 && (raw.get() as u32 as i32) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_start_at_the_same_time() {
        let old = Timestamp::decode(U64::new(0x8000_0000_0000_0005), false);
        assert_eq!(old, Timestamp { seconds: i64::from(i32::MIN), nanoseconds: 5 });
        assert_eq!(Timestamp::decode(U64::new(5), true), old);
        assert_eq!(Timestamp::decode(U64::MAX_VALUE, true).seconds, 16_299_260_425);
    }

    #[test]
    fn timestamps_round_trip_or_clamp() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let both = [
            at(0, 0),
            at(1_700_000_000, 999_999_999),
            at(-1, 1),
            at(i32::MIN.into(), 0),
            at(i32::MAX.into(), 7),
        ];
        for time in both {
            assert_eq!(Timestamp::decode(time.encode(false), false), time);
            assert_eq!(Timestamp::decode(time.encode(true), true), time);
        }
        let late = at(1 << 33, 5);
        assert_eq!(Timestamp::decode(late.encode(true), true), late);
        assert_eq!(Timestamp::decode(late.encode(false), false), at(i32::MAX.into(), 999_999_999));
        for (time, wide) in [(at(i64::MIN, 0), 0), (at(i64::MAX, 0), u64::MAX)] {
            assert_eq!(time.encode(true).get(), wide);
        }
        assert_eq!(Timestamp::decode(at(i64::MIN, 9).encode(false), false), at(i32::MIN.into(), 0));
    }
}
