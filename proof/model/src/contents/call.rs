//! Calls on contents.

/// Mode of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocates blocks.
    Allocate,
    /// Frees blocks; the size does not change (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Zeroes the range.
    Zero,
    /// Removes the range from the file.
    Collapse,
    /// Inserts zeros.
    Insert,
    /// Replaces shared blocks by the file's own.
    Unshare,
}

/// One call. Files are indices into a list; offsets (`at`) and lengths are in bytes.
#[expect(missing_docs, reason = "the fields have the same meaning in all variants")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads a range and compares it with the model.
    Read { file: usize, at: u64, length: u64, direct: bool },
    /// Writes the bytes of [`fill`](super::fill) for `seed`.
    Write { file: usize, at: u64, length: u64, seed: u64, direct: bool },
    /// Writes at the end.
    Append { file: usize, length: u64, seed: u64 },
    /// Truncates or extends the file.
    SetSize { file: usize, size: u64 },
    /// `fallocate`; `keep_size` prevents an extension of the file.
    Fallocate { file: usize, mode: FallocateMode, at: u64, length: u64, keep_size: bool },
    /// Shares blocks with a range of another file or of the same one (`FICLONERANGE`).
    Clone { from: usize, from_at: u64, to: usize, to_at: u64, length: u64 },
    /// Shares blocks if both ranges hold the same bytes (`FIDEDUPERANGE`).
    Dedupe { from: usize, from_at: u64, to: usize, to_at: u64, length: u64 },
    /// Seeks data and holes from an offset (`SEEK_DATA`, `SEEK_HOLE`).
    Seek { file: usize, at: u64 },
    /// Makes a file durable (`fsync`).
    Sync { file: usize },
    /// Closes a file and opens it again.
    Reopen { file: usize },
    /// Makes the whole volume durable (`syncfs`).
    SyncAll,
}
