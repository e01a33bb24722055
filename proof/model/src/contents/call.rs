//! One call on contents.

/// What `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Has blocks ready.
    Allocate,
    /// Takes blocks away; the size stays.
    Punch,
    /// Makes zeros.
    Zero,
    /// Takes the range out.
    Collapse,
    /// Puts zeros in.
    Insert,
    /// Gives the file blocks of its own.
    Unshare,
}

/// One call. Files are named by their places in a list; places and lengths are bytes.
#[expect(missing_docs, reason = "the fields say what they are, the same in each")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads and compares.
    Read { file: usize, at: u64, length: u64, direct: bool },
    /// Writes what [`fill`](super::fill) gives for `seed`.
    Write { file: usize, at: u64, length: u64, seed: u64, direct: bool },
    /// Writes behind the end.
    Append { file: usize, length: u64, seed: u64 },
    /// Cuts off or grows.
    SetSize { file: usize, size: u64 },
    /// `fallocate`; `keep` leaves the size as it is where it could grow.
    Reserve { file: usize, what: Reserve, at: u64, length: u64, keep: bool },
    /// Shares blocks of another file, or of the same.
    Clone { from: usize, from_at: u64, to: usize, to_at: u64, length: u64 },
    /// The same, if both ranges hold the same bytes.
    Dedupe { from: usize, from_at: u64, to: usize, to_at: u64, length: u64 },
    /// Looks for data and holes from a byte on.
    Seek { file: usize, at: u64 },
    /// Makes a file stable.
    Sync { file: usize },
    /// Closes a file and opens it again.
    Reopen { file: usize },
    /// Makes the whole volume stable.
    SyncAll,
}
