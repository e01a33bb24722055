//! Reassembling transactions from operations.

use base::Lsn;
use format::log::operation::{LogOperation, client, flags};

use super::items;
use super::volume::TestVolume;
use crate::assemble::{RecoveredTransaction, TransactionAssembler};
use crate::synth::{SyntheticOperation, split_records};

fn push(assembler: &mut TransactionAssembler, op: &SyntheticOperation) -> Option<RecoveredTransaction> {
    let operation =
        LogOperation { offset: 0, tid: op.tid, client: client::TRANSACTION, flags: op.flags, data: &op.data };
    assembler.push(Lsn::new(1, 0), &operation).unwrap()
}

/// The regions of all items.
fn contents(transaction: &RecoveredTransaction) -> Vec<Vec<Vec<u8>>> {
    transaction.items().map(|item| item.regions().map(<[u8]>::to_vec).collect()).collect()
}

#[test]
fn regions_and_the_header_can_be_split_anywhere() {
    let volume = TestVolume::new(1024);
    let items = [items::whole_block(800, 1), items::cancel(80, 8), items::block_chunk(800, 3, 9)];
    let operations = volume.writer().operations(&items);
    for room in 16..200 {
        let mut assembler = TransactionAssembler::new(1 << 20);
        let done: Vec<_> = split_records(&operations, room)
            .iter()
            .flatten()
            .filter_map(|op| push(&mut assembler, op))
            .collect();
        assert_eq!(done.len(), 1, "room {room}");
        assert_eq!(contents(&done[0]), items, "room {room}");
        assert_eq!(assembler.open(), 0);
        assert_eq!(done[0].promised_regions, 5);
    }
}

#[test]
fn interleaved_transactions_are_returned_in_commit_order() {
    let volume = TestVolume::new(1024);
    let mut writer = volume.writer();
    let first = writer.operations(&[items::whole_block(800, 1)]);
    let second = writer.operations(&[items::cancel(80, 8)]);
    let mut assembler = TransactionAssembler::new(1 << 20);
    let order = first[..2].iter().chain(&second).chain(&first[2..]);
    let done: Vec<u32> = order.filter_map(|op| push(&mut assembler, op)).map(|done| done.tid).collect();
    assert_eq!(done, [2, 1]);
}

#[test]
fn transactions_before_the_tail_and_without_a_commit_are_ignored() {
    let volume = TestVolume::new(1024);
    let operations = volume.writer().operations(&[items::whole_block(800, 1)]);
    let mut assembler = TransactionAssembler::new(1 << 20);
    assert!(operations[1..].iter().all(|op| push(&mut assembler, op).is_none()));
    assert!(operations[..3].iter().all(|op| push(&mut assembler, op).is_none()));
    assert_eq!(assembler.open(), 1);
}

#[test]
fn malformed_transactions_are_rejected() {
    let volume = TestVolume::new(1024);
    let good = volume.writer().operations(&[items::whole_block(800, 1)]);
    let try_all = |operations: &[SyntheticOperation], most: u64| {
        let mut assembler = TransactionAssembler::new(most);
        operations.iter().find_map(|op| {
            let operation = LogOperation {
                offset: 0,
                tid: op.tid,
                client: client::TRANSACTION,
                flags: op.flags,
                data: &op.data,
            };
            assembler.push(Lsn::new(1, 0), &operation).err().map(|damage| damage.field())
        })
    };
    assert_eq!(try_all(&good, 1 << 20), None);
    assert_eq!(try_all(&good, 100), Some("size"));
    let mut bad = good.clone();
    bad[1].data[0] ^= 1;
    assert_eq!(try_all(&bad, 1 << 20), Some("magic"));
    let mut bad = good.clone();
    bad.remove(3);
    assert_eq!(try_all(&bad, 1 << 20), Some("item"));
    let mut bad = good.clone();
    bad[2].data[0] = 0;
    assert_eq!(try_all(&bad, 1 << 20), Some("type"));
    let mut bad = good;
    bad[2].flags = flags::WAS_CONTINUED;
    assert_eq!(try_all(&bad, 1 << 20), Some("flags"));
}
