//! Log records: one to eight header blocks, then the data blocks.
//!
//! Each 512-byte block of a log stores the cycle number in its first four bytes (the first block of a record, which
//! begins with the magic, in the next four), so that head and tail can be found. The four bytes it replaces are saved
//! in `cycle_data` of the headers. If a record wraps around the physical end of the log, the blocks after the wrap
//! carry the next cycle number. The checksum covers the blocks as stored on disk, including cycle numbers.

use base::Lsn;

use super::BLOCK_BYTES;
use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU32, OnDisk, U32, U64};

/// First word of a record.
pub const MAGIC: u32 = 0xfeed_babe;
/// Number of data blocks whose replaced words fit into one header block.
pub const CYCLES_PER_HEADER: usize = 64;
/// Number of data bytes covered by one header block.
const BYTES_PER_HEADER: u32 = (CYCLES_PER_HEADER * BLOCK_BYTES) as u32;
/// Maximum length of a record's data in bytes.
pub const MAX_BYTES: u32 = 256 << 10;
/// Maximum number of records in flight: a power failure can tear only the last of them.
pub const MAX_IN_FLIGHT: u32 = 8;
/// Maximum number of blocks of a record, including headers.
pub const MAX_BLOCKS: u32 = (MAX_BYTES / BYTES_PER_HEADER) + MAX_BYTES / BLOCK_BYTES as u32;
const NAME: &str = "log record header";

crate::ondisk! {
    /// The first block of a record.
    pub struct RawRecordHeader("log record header", 512) {
        /// `0xfeedbabe`.
        magicno: U32 = Hex,
        /// Cycle number.
        cycle: U32 = Uint,
        /// 2.
        version: U32 = Uint,
        /// Length of the data in bytes, including padding to the log stripe unit.
        len: U32 = Uint,
        /// LSN: the cycle, and the log block of this record.
        lsn: U64 = Lsn,
        /// LSN of the log tail when this record was written.
        tail_lsn: U64 = Lsn,
        /// CRC32C of header and data; 0 if written by mkfs.
        crc: LeU32 = Crc,
        /// Log block of the previous record.
        prev_block: U32 = Nullable,
        /// Number of operations.
        num_logops: U32 = Uint,
        /// The words replaced by cycle numbers in the first 64 data blocks.
        cycle_data: [U32; 64] = Hex,
        /// Byte order and operating system of the writer.
        fmt: U32 = Uint,
        /// The volume's user-visible UUID.
        fs_uuid: [u8; 16] = Uuid,
        /// Size of the writer's log buffers in bytes, which determines the number of header blocks.
        size: U32 = Uint,
        /// Zero.
        reserved: [u8; 188] = Padding,
    }

    /// An additional header block, used with log buffers larger than 32 KiB.
    pub struct RawExtHeader("log record extended header", 512) {
        /// Cycle number.
        cycle: U32 = Uint,
        /// The words replaced by cycle numbers in the next 64 data blocks.
        cycle_data: [U32; 64] = Hex,
        /// Zero.
        reserved: [u8; 252] = Padding,
    }
}

/// Bytes of the first header that the checksum covers, including the padding after `size`.
const CHECKED_BYTES: usize = 328;
/// The value for a 32-bit x86 writer, whose structure ends without that padding.
const CHECKED_BYTES_I386: usize = 324;
/// Bytes of an additional header that the checksum covers.
const CHECKED_EXT_BYTES: usize = 260;
const CRC_OFFSET: usize = std::mem::offset_of!(RawRecordHeader, crc);

/// The cycle number of a log block.
pub fn block_cycle(block: &[u8]) -> Option<u32> {
    let first = U32::view(block)?.get();
    if first == MAGIC { Some(U32::view(block.get(4..)?)?.get()) } else { Some(first) }
}

/// Whether a log block is the first of a record.
pub fn is_header(block: &[u8]) -> bool {
    U32::view(block).is_some_and(|first| first.get() == MAGIC)
}

/// The next cycle number; skips the one that equals the magic of a record.
pub fn next_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_add(1) {
        MAGIC => MAGIC + 1,
        next => next,
    }
}

/// The inverse of [`next_cycle`].
pub fn previous_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_sub(1) {
        MAGIC => MAGIC - 1,
        previous => previous,
    }
}

/// The decoded header of a record, with verified lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// LSN; its block is the position of the record.
    pub lsn: Lsn,
    /// LSN of the log tail.
    pub tail_lsn: Lsn,
    /// Length of the data in bytes.
    pub len: u32,
    /// Number of header blocks: 1 to 8.
    pub header_blocks: u32,
    /// Number of operations.
    pub operations: u32,
    /// Log block of the previous record; all ones in the first.
    pub prev_block: u32,
    /// The stored checksum; 0 means none.
    pub crc: u32,
    /// Byte order and operating system of the writer.
    pub fmt: u32,
    /// The volume's user-visible UUID.
    pub uuid: [u8; 16],
    /// Size of the writer's log buffers in bytes.
    pub size: u32,
}

impl RecordHeader {
    /// Decodes the first block of a record at log block `at`.
    pub fn parse(block: &[u8], at: u32) -> Result<Self, Damage> {
        let raw = RawRecordHeader::view(block)
            .ok_or_else(|| Damage::short(NAME, RawRecordHeader::SIZE, block.len()))?;
        let magic = raw.magicno.get();
        ensure!(magic == MAGIC, NAME, "magicno", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        ensure!(raw.version.get() == 2, NAME, "version", 2, raw.version);
        let lsn = Lsn(raw.lsn.get());
        ensure!(
            lsn.block() == at,
            NAME,
            "lsn",
            format_args!("block {at}"),
            format_args!("block {}", lsn.block())
        );
        ensure!(
            lsn.cycle() == raw.cycle.get(),
            NAME,
            "lsn",
            format_args!("cycle {}", raw.cycle),
            lsn.cycle()
        );
        let (len, size) = (raw.len.get(), raw.size.get());
        ensure!(len <= MAX_BYTES, NAME, "len", format_args!("at most {MAX_BYTES}"), len);
        ensure!(size <= MAX_BYTES, NAME, "size", format_args!("at most {MAX_BYTES}"), size);
        // mkfs may pad its only record to a log stripe unit beyond the stated size.
        let operations = raw.num_logops.get();
        let most = size.max(BYTES_PER_HEADER);
        ensure!(len <= most || operations == 1, NAME, "len", format_args!("at most {most}"), len);
        Ok(Self {
            lsn,
            tail_lsn: Lsn(raw.tail_lsn.get()),
            len,
            header_blocks: size.div_ceil(BYTES_PER_HEADER).max(1),
            operations,
            prev_block: raw.prev_block.get(),
            crc: raw.crc.get(),
            fmt: raw.fmt.get(),
            uuid: raw.fs_uuid,
            size,
        })
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> u32 {
        self.len.div_ceil(BLOCK_BYTES as u32)
    }

    /// Number of blocks of the record: at most [`MAX_BLOCKS`].
    pub fn blocks(&self) -> u32 {
        self.header_blocks + self.data_blocks()
    }

    /// Verifies that this machine can decode the items, and that they belong to this volume.
    ///
    /// `uuid` is the user-visible UUID; a record without a UUID is accepted.
    pub fn verify_writer(&self, uuid: &[u8; 16]) -> Result<(), Damage> {
        let order = match self.fmt {
            2 => "big-endian Linux",
            3 => "big-endian IRIX",
            _ => "unknown",
        };
        ensure!(
            self.fmt == 1,
            NAME,
            "fmt",
            "1 (little-endian Linux)",
            format_args!("{} ({order})", self.fmt)
        );
        ensure!(self.uuid == *uuid || self.uuid == [0; 16], NAME, "fs_uuid", "the volume's UUID", "another");
        Ok(())
    }

    /// Verifies the checksum of a whole record as stored on disk. Records without one, which mkfs writes, are accepted.
    pub fn verify_checksum(&self, record: &[u8]) -> Result<(), Damage> {
        if self.crc == 0 {
            return Ok(());
        }
        let compute = |bytes| self.compute_checksum(record, bytes);
        let expected = compute(CHECKED_BYTES)
            .ok_or_else(|| Damage::short("log record", self.blocks() as usize * BLOCK_BYTES, record.len()))?;
        if self.crc == expected || compute(CHECKED_BYTES_I386) == Some(self.crc) {
            return Ok(());
        }
        Err(Damage::new(
            "log record",
            "crc",
            format_args!("{expected:#010x}"),
            format_args!("{:#010x}", self.crc),
        ))
    }

    /// Computes the checksum of a whole record. `checked` is the number of bytes of the first header that it covers.
    fn compute_checksum(&self, record: &[u8], checked: usize) -> Option<u32> {
        let mut crc = checksum::raw(!0, record.get(..CRC_OFFSET)?);
        crc = checksum::raw(crc, &[0; 4]);
        crc = checksum::raw(crc, record.get(CRC_OFFSET + 4..checked)?);
        // Only header blocks that this record's length requires are covered.
        let used = self.len.div_ceil(BYTES_PER_HEADER).min(self.header_blocks) as usize;
        for n in 1..used {
            let header = record.get(n * BLOCK_BYTES..)?;
            crc = checksum::raw(crc, header.get(..CHECKED_EXT_BYTES)?);
        }
        let data = record.get(self.header_blocks as usize * BLOCK_BYTES..)?;
        Some(!checksum::raw(crc, data.get(..self.len as usize)?))
    }

    /// Restores the words replaced by cycle numbers in the data of a whole record. The headers are not changed.
    pub fn restore_data(&self, record: &mut [u8]) -> Result<(), Damage> {
        let short = || Damage::short("log record", self.blocks() as usize * BLOCK_BYTES, 0);
        let split = self.header_blocks as usize * BLOCK_BYTES;
        let (headers, data) = record.split_at_mut_checked(split).ok_or_else(short)?;
        let blocks = data.chunks_exact_mut(BLOCK_BYTES).take(self.data_blocks() as usize);
        for (n, block) in blocks.enumerate() {
            // A record longer than its headers cover is padding written by mkfs: no words were replaced there.
            let Some(word) = displaced_at(n, headers) else { break };
            let (word, first) = (headers.get(word..word + 4), block.get_mut(..4));
            first.zip(word).map(|(first, word)| first.copy_from_slice(word)).ok_or_else(short)?;
        }
        Ok(())
    }
}

/// Offset in the headers of the word replaced in data block `n`; `None` if the headers do not cover it.
fn displaced_at(n: usize, headers: &[u8]) -> Option<usize> {
    let (header, slot) = (n / CYCLES_PER_HEADER, n % CYCLES_PER_HEADER);
    let base = match header {
        0 => std::mem::offset_of!(RawRecordHeader, cycle_data),
        _ => std::mem::offset_of!(RawExtHeader, cycle_data),
    };
    let at = header * BLOCK_BYTES + base + slot * 4;
    (at + 4 <= headers.len()).then_some(at)
}

/// Changes the UUID of a whole record as stored on disk, and updates its checksum if it has one. Returns `false`, with
/// `record` in an undefined state, if it is shorter than its header says.
pub fn restamp(record: &mut [u8], header: &RecordHeader, uuid: &[u8; 16]) -> bool {
    let place = std::mem::offset_of!(RawRecordHeader, fs_uuid);
    let Some(field) = record.get_mut(place..place + uuid.len()) else { return false };
    field.copy_from_slice(uuid);
    if header.crc == 0 {
        return true;
    }
    let Some(crc) = header.compute_checksum(record, CHECKED_BYTES) else { return false };
    let field = record.get_mut(CRC_OFFSET..CRC_OFFSET + 4);
    field.map(|field| field.copy_from_slice(&crc.to_le_bytes())).is_some()
}

/// Prepares a whole record for writing: stores the cycle numbers, saves the replaced words, and computes the checksum.
///
/// `record` holds `header_blocks` header blocks, the first complete except for `cycle_data` and `crc`, followed by
/// whole data blocks. `wraps_after` is the number of blocks up to the physical end of the log. Returns `false`, with
/// `record` in an undefined state, if the lengths are inconsistent.
pub fn seal(record: &mut [u8], header: &RecordHeader, wraps_after: u32) -> bool {
    if record.len() != header.blocks() as usize * BLOCK_BYTES {
        return false;
    }
    let split = header.header_blocks as usize * BLOCK_BYTES;
    let (headers, data) = record.split_at_mut(split);
    for (n, block) in data.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let Some(at) = displaced_at(n, headers) else { return false };
        let (Some(word), Some(first)) = (headers.get_mut(at..at + 4), block.get_mut(..4)) else {
            return false;
        };
        word.copy_from_slice(first);
    }
    for (n, block) in record.chunks_exact_mut(BLOCK_BYTES).enumerate().skip(1) {
        let cycle = header.lsn.cycle();
        let cycle = if n >= wraps_after as usize { next_cycle(cycle) } else { cycle };
        if let Some(first) = block.get_mut(..4) {
            first.copy_from_slice(&cycle.to_be_bytes());
        }
    }
    let Some(crc) = header.compute_checksum(record, CHECKED_BYTES) else { return false };
    record
        .get_mut(CRC_OFFSET..CRC_OFFSET + 4)
        .map(|field| field.copy_from_slice(&crc.to_le_bytes()))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn sample(size: u32, len: u32, wraps_after: u32) -> (RecordHeader, Vec<u8>, Vec<u8>) {
        let mut raw = RawRecordHeader::new_zeroed();
        raw.magicno.set(MAGIC);
        raw.cycle.set(7);
        raw.version.set(2);
        raw.len.set(len);
        raw.size.set(size);
        raw.lsn.set(Lsn::new(7, 40).get());
        raw.num_logops.set(3);
        raw.fmt.set(1);
        let header = RecordHeader::parse(raw.as_bytes(), 40).unwrap();
        let data: Vec<u8> = (0..len).map(|n| ((n * 31) >> 3) as u8).collect();
        let mut record = raw.as_bytes().to_vec();
        record.resize(header.header_blocks as usize * BLOCK_BYTES, 0);
        record.extend_from_slice(&data);
        assert!(seal(&mut record, &header, wraps_after));
        let sealed = RecordHeader::parse(&record, 40).unwrap();
        (sealed, record, data)
    }

    #[test]
    fn a_sealed_record_verifies_and_restores_its_data() {
        for (size, len) in [(32 << 10, 512), (32 << 10, 32 << 10), (256 << 10, 512), (256 << 10, 256 << 10)] {
            let (header, mut record, data) = sample(size, len, u32::MAX);
            header.verify_checksum(&record).unwrap();
            for block in record.chunks_exact(BLOCK_BYTES) {
                assert_eq!(block_cycle(block), Some(7));
            }
            header.restore_data(&mut record).unwrap();
            assert_eq!(record[header.header_blocks as usize * BLOCK_BYTES..], data);
        }
    }

    #[test]
    fn blocks_after_the_physical_end_carry_the_next_cycle() {
        let (header, record, _) = sample(64 << 10, 4096, 5);
        header.verify_checksum(&record).unwrap();
        let cycles: Vec<u32> = record.chunks_exact(BLOCK_BYTES).filter_map(block_cycle).collect();
        assert_eq!(cycles, [7, 7, 7, 7, 7, 8, 8, 8, 8, 8]);
    }

    #[test]
    fn flipped_bits_under_the_checksum_are_detected() {
        let (_, mut record, _) = sample(64 << 10, 1024, u32::MAX);
        for bit in (0..record.len() * 8).step_by(3) {
            let byte = bit / 8;
            // The unused second header and the rest of the first are not covered; a zero checksum means none.
            if (CHECKED_BYTES..1024).contains(&byte) || (CRC_OFFSET..CRC_OFFSET + 4).contains(&byte) {
                continue;
            }
            record[byte] ^= 1 << (bit % 8);
            let found = RecordHeader::parse(&record, 40).and_then(|h| h.verify_checksum(&record));
            assert!(found.is_err(), "bit {bit}");
            record[byte] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn lengths_out_of_range_are_reported() {
        let (_, record, _) = sample(32 << 10, 512, u32::MAX);
        for (offset, value, field) in
            [(12, MAX_BYTES + 512, "len"), (320, MAX_BYTES * 2, "size"), (12, 65536, "len")]
        {
            let mut bad = record.clone();
            bad[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
            assert_eq!(RecordHeader::parse(&bad, 40).unwrap_err().field(), field);
        }
        assert_eq!(RecordHeader::parse(&record, 41).unwrap_err().field(), "lsn");
    }

    #[test]
    fn the_cycle_never_looks_like_a_header() {
        assert_eq!(next_cycle(1), 2);
        assert_eq!(next_cycle(MAGIC - 1), MAGIC + 1);
        assert_eq!(previous_cycle(MAGIC + 1), MAGIC - 1);
        assert_eq!(previous_cycle(7), 6);
    }
}
