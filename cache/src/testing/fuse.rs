//! Which calls fail, and when.

use std::sync::atomic::{AtomicI64, AtomicU64};

/// Calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Map,
    Claim,
    Finish,
    FinishOne,
    SetSize,
    Reserve,
    ReserveRmap,
    Read,
    Write,
}

/// All of them.
pub const OPS: [Op; 9] = [
    Op::Map,
    Op::Claim,
    Op::Finish,
    Op::FinishOne,
    Op::SetSize,
    Op::Reserve,
    Op::ReserveRmap,
    Op::Read,
    Op::Write,
];

/// Calls of one kind: how many succeed before one fails, and how many fail then.
#[derive(Debug)]
pub(super) struct Fuse {
    pub left: AtomicI64,
    pub failing: AtomicI64,
    pub calls: AtomicU64,
}
