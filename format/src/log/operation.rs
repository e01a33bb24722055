//! Operations: the data of a record is a sequence of headers, each followed by a region of a transaction.
//!
//! A region that does not fit into the rest of a record is split: its first part has the flag `CONTINUE`, each later
//! part `WAS_CONTINUED`, the last part also `END`.

use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{OnDisk, U32};

const NAME: &str = "log operation";

crate::ondisk! {
    /// Header of an operation.
    pub struct RawOperation("log operation header", 12) {
        /// Transaction id, unique among those open at a time.
        tid: U32 = Hex,
        /// Length of the region that follows.
        len: U32 = Uint,
        /// Writer.
        clientid: u8 = Hex,
        /// Flags.
        flags: u8 = Hex,
        /// Zero.
        res2: [u8; 2] = Padding,
    }
}

/// Values of `clientid`.
pub mod client {
    /// A transaction.
    pub const TRANSACTION: u8 = 0x69;
    /// The log itself.
    pub const LOG: u8 = 0xaa;
}

/// Bits of `flags`.
pub mod flags {
    /// Start of a transaction.
    pub const START: u8 = 1 << 0;
    /// End of a transaction.
    pub const COMMIT: u8 = 1 << 1;
    /// The region continues in another operation.
    pub const CONTINUE: u8 = 1 << 2;
    /// The region began in an earlier operation.
    pub const WAS_CONTINUED: u8 = 1 << 3;
    /// The last part of a continued region.
    pub const END: u8 = 1 << 4;
    /// Unmount record: the volume was cleanly unmounted.
    pub const UNMOUNT: u8 = 1 << 5;
}

/// The start of the region of an unmount operation (`Un`).
pub const UNMOUNT_MAGIC: u16 = 0x556e;

/// One operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOperation<'a> {
    /// Offset of the operation's header in the record's data.
    pub offset: u32,
    /// Transaction id.
    pub tid: u32,
    /// See [`client`].
    pub client: u8,
    /// See [`flags`].
    pub flags: u8,
    /// The region, or its part in this record.
    pub data: &'a [u8],
}

impl LogOperation<'_> {
    /// Whether any of these flags is set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// Iterator over the operations of a record. An operation that does not fit yields an error and ends the iteration.
#[derive(Clone, Debug)]
pub struct LogOperations<'a> {
    data: &'a [u8],
    offset: usize,
    left: u32,
}

impl<'a> LogOperations<'a> {
    /// Iterates over `count` operations of a record's restored data.
    pub fn new(data: &'a [u8], count: u32) -> Self {
        Self { data, offset: 0, left: count }
    }

    fn parse(&mut self) -> Result<LogOperation<'a>, Damage> {
        let have = self.data.len();
        let rest = self.data.get(self.offset..).unwrap_or(&[]);
        let raw = RawOperation::view(rest)
            .ok_or_else(|| Damage::short(NAME, self.offset.saturating_add(RawOperation::SIZE), have))?;
        let known = matches!(raw.clientid, client::TRANSACTION | client::LOG);
        ensure!(known, NAME, "clientid", "0x69 or 0xaa", format_args!("{:#x}", raw.clientid));
        let len = raw.len.get() as usize;
        let data = rest.get(RawOperation::SIZE..).and_then(|rest| rest.get(..len)).ok_or_else(|| {
            Damage::new(
                NAME,
                "len",
                format_args!("an end within {have} bytes"),
                format_args!("{len} at {}", self.offset),
            )
        })?;
        let operation = LogOperation {
            offset: self.offset as u32, // a record has at most 256 KiB
            tid: raw.tid.get(),
            client: raw.clientid,
            flags: raw.flags,
            data,
        };
        self.offset += RawOperation::SIZE + len;
        Ok(operation)
    }
}

impl<'a> Iterator for LogOperations<'a> {
    type Item = Result<LogOperation<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let parsed = self.parse();
        if parsed.is_err() {
            self.left = 0;
        }
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_beyond_the_record_ends_the_iteration() {
        let mut data = vec![0, 0, 0, 1, 0, 0, 0, 4, client::TRANSACTION, 0, 0, 0, 9, 9, 9, 9];
        data.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, client::TRANSACTION, 0, 0, 0]);
        let all: Vec<_> = LogOperations::new(&data, u32::MAX).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].as_ref().unwrap().data, [9, 9, 9, 9]);
        assert_eq!(all[1].as_ref().unwrap_err().field(), "len");
        assert!(LogOperations::new(&[], 5).next().unwrap().is_err());
        assert!(LogOperations::new(&[], 0).next().is_none());
    }
}
