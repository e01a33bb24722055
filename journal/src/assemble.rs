//! Reassembling transactions from the operations in log records.
//!
//! # Invariants
//! Memory is bounded by the log: bytes by those of the active log (plus eight for each region, whose header took
//! twelve), open transactions by `MAX_OPEN`. A transaction without a commit operation is dropped.

use std::collections::HashMap;
use std::ops::Range;

use base::Lsn;
use format::damage::Damage;
use format::ensure;
use format::log::item::{self, ItemType, RawTransactionHeader, TRANSACTION_MAGIC};
use format::log::operation::{LogOperation, flags};
use format::ondisk::OnDisk;

use crate::area::LogArea;
use crate::error::LogError;
use crate::record::{LogRecord, LogRecords};

/// Most transactions open at once. Writers have a handful; old ones had one per CPU.
const MAX_OPEN: usize = 1 << 16;
const NAME: &str = "log transaction";

/// A complete transaction read from the log.
#[derive(Clone, Debug)]
pub struct RecoveredTransaction {
    /// Identifier, unique while the transaction is open.
    pub tid: u32,
    /// LSN of its first record, which its changes get.
    pub lsn: Lsn,
    /// LSN of the record with its commit operation.
    pub commit_lsn: Lsn,
    /// Transaction type: 40, a checkpoint, since Linux has delayed logging.
    pub kind: u32,
    /// Number of regions in its header: with delayed logging, regions are counted and not items.
    pub promised_regions: u32,
    bytes: Vec<u8>,
    regions: Vec<RegionRange>,
    items: Vec<ItemSpan>,
}

/// Range of a region in the transaction's bytes.
#[derive(Clone, Copy, Debug)]
struct RegionRange {
    start: u32,
    end: u32,
}

/// The regions of an item.
#[derive(Clone, Copy, Debug)]
struct ItemSpan {
    kind: ItemType,
    first: u32,
    count: u16,
    promised: u16,
}

/// A log item of a transaction: a type and its regions, not decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawLogItem<'a> {
    /// Log item type.
    pub kind: ItemType,
    bytes: &'a [u8],
    regions: &'a [RegionRange],
}

impl<'a> RawLogItem<'a> {
    /// Number of regions, at least one.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Always false: an item has at least one region.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Region `n`; empty if there is none.
    pub fn region(&self, n: usize) -> &'a [u8] {
        self.regions.get(n).and_then(|region| self.bytes.get(region.range())).unwrap_or(&[])
    }

    /// All regions, the format first.
    pub fn regions(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (item, count) = (*self, self.len());
        (0..count).map(move |n| item.region(n))
    }
}

impl RegionRange {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl RecoveredTransaction {
    /// The items in log order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = RawLogItem<'_>> {
        self.items.iter().map(|span| {
            let first = span.first as usize;
            let regions = self.regions.get(first..first + usize::from(span.count)).unwrap_or(&[]);
            RawLogItem { kind: span.kind, bytes: &self.bytes, regions }
        })
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn start(tid: u32, lsn: Lsn) -> Self {
        Self {
            tid,
            lsn,
            commit_lsn: lsn,
            kind: 0,
            promised_regions: 0,
            bytes: Vec::new(),
            regions: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Whether the header, which is the first region, is incomplete.
    fn in_header(&self) -> bool {
        self.items.is_empty() && self.bytes.len() < RawTransactionHeader::SIZE
    }

    /// Adds a new region, or the first part of one.
    fn add(&mut self, data: &[u8]) -> Result<(), Damage> {
        if data.is_empty() {
            return Ok(());
        }
        if self.in_header() {
            return self.add_to_header(data);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        let region = self.regions.len() as u32; // below the bytes, which are below 2^31
        self.regions.push(RegionRange { start: start as u32, end: self.bytes.len() as u32 });
        match self.items.last_mut() {
            Some(span) if span.count < span.promised => span.count += 1,
            _ => {
                let (kind, promised) = item::head(data)?;
                self.items.push(ItemSpan { kind, first: region, count: 1, promised });
            }
        }
        Ok(())
    }

    /// Adds the next part of the last region.
    fn add_to_last(&mut self, data: &[u8]) -> Result<(), Damage> {
        if self.in_header() {
            return self.add_to_header(data);
        }
        self.bytes.extend_from_slice(data);
        let end = self.bytes.len() as u32;
        let last = self.regions.last_mut();
        last.map(|region| region.end = end)
            .ok_or_else(|| Damage::new(NAME, "flags", "a region that can be continued", "no region yet"))
    }

    /// Adds to the header, which can be split anywhere.
    fn add_to_header(&mut self, data: &[u8]) -> Result<(), Damage> {
        self.bytes.extend_from_slice(data);
        let have = self.bytes.len();
        ensure!(
            have <= RawTransactionHeader::SIZE,
            NAME,
            "header",
            format_args!("{} bytes", RawTransactionHeader::SIZE),
            have
        );
        let Some(raw) = RawTransactionHeader::view(&self.bytes) else { return Ok(()) };
        let magic = raw.magic.get();
        ensure!(
            magic == TRANSACTION_MAGIC,
            NAME,
            "magic",
            format_args!("{TRANSACTION_MAGIC:#x}"),
            format_args!("{magic:#x}")
        );
        (self.kind, self.promised_regions) = (raw.kind.get(), raw.num_items.get());
        Ok(())
    }

    /// Checks that the last item has all its regions.
    fn finish(self, commit_lsn: Lsn) -> Result<Self, Damage> {
        if let Some(span) = self.items.last() {
            ensure!(
                span.count == span.promised,
                NAME,
                "item",
                format_args!("{} regions", span.promised),
                span.count
            );
        }
        Ok(Self { commit_lsn, ..self })
    }
}

/// Transactions that are not complete yet.
#[derive(Debug)]
pub struct TransactionAssembler {
    open: HashMap<u32, RecoveredTransaction>,
    bytes: u64,
    most_bytes: u64,
}

impl TransactionAssembler {
    /// For a log of `log_bytes`.
    pub fn new(log_bytes: u64) -> Self {
        Self { open: HashMap::new(), bytes: 0, most_bytes: log_bytes }
    }

    /// Number of transactions without a commit so far.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Takes one operation of a record; returns the transaction that it completes.
    ///
    /// Operations of a transaction that starts before the tail are ignored: its changes are in place.
    pub fn push(
        &mut self,
        lsn: Lsn,
        operation: &LogOperation<'_>,
    ) -> Result<Option<RecoveredTransaction>, Damage> {
        if operation.has(flags::START) {
            ensure!(
                self.open.len() < MAX_OPEN,
                NAME,
                "count",
                format_args!("at most {MAX_OPEN} open"),
                "more"
            );
            let old = self.open.insert(operation.tid, RecoveredTransaction::start(operation.tid, lsn));
            // After a crash, a writer may reuse the identifier of a transaction that was never committed.
            self.bytes -= old.map_or(0, |old| old.bytes.len() as u64);
            return Ok(None);
        }
        if operation.has(flags::COMMIT) {
            let Some(done) = self.open.remove(&operation.tid) else { return Ok(None) };
            self.bytes -= done.bytes.len() as u64;
            return done.finish(lsn).map(Some);
        }
        let Some(transaction) = self.open.get_mut(&operation.tid) else { return Ok(None) };
        if operation.has(flags::UNMOUNT) {
            return Ok(None);
        }
        self.bytes += operation.data.len() as u64;
        ensure!(
            self.bytes <= self.most_bytes,
            NAME,
            "size",
            format_args!("at most {} bytes", self.most_bytes),
            self.bytes
        );
        if operation.has(flags::WAS_CONTINUED) {
            transaction.add_to_last(operation.data)?;
        } else {
            transaction.add(operation.data)?;
        }
        Ok(None)
    }
}

/// Iterates over the complete transactions of some records, in the order of their commits. Ends after the first error.
#[derive(Debug)]
pub struct RecoveredTransactions<'a> {
    records: LogRecords<'a>,
    assembler: TransactionAssembler,
    ready: std::vec::IntoIter<RecoveredTransaction>,
}

impl<'a> RecoveredTransactions<'a> {
    /// The transactions in `records` of this log.
    pub fn new(records: LogRecords<'a>, area: &LogArea<'_>) -> Self {
        let log_bytes = u64::from(area.blocks()) * format::log::BLOCK_BYTES as u64;
        Self { records, assembler: TransactionAssembler::new(log_bytes), ready: Vec::new().into_iter() }
    }

    /// Number of transactions without a commit in the records read so far.
    pub fn incomplete(&self) -> usize {
        self.assembler.open()
    }

    fn take(&mut self, record: &LogRecord) -> Result<(), LogError> {
        let lsn = record.header.lsn;
        let malformed = |damage| LogError::Transaction { lsn, damage };
        let mut ready = Vec::new();
        for operation in record.operations() {
            let operation = operation.map_err(malformed)?;
            ready.extend(self.assembler.push(lsn, &operation).map_err(malformed)?);
        }
        self.ready = ready.into_iter();
        Ok(())
    }
}

impl Iterator for RecoveredTransactions<'_> {
    type Item = Result<RecoveredTransaction, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(transaction) = self.ready.next() {
                return Some(Ok(transaction));
            }
            let taken = self.records.next()?.and_then(|record| self.take(&record));
            if let Err(error) = taken {
                self.records.stop();
                return Some(Err(error));
            }
        }
    }
}
