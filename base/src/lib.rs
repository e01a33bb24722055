//! Shared by all layers: unit types, error numbers, locks, threads, and the deterministic scheduler for tests.
//!
//! | part | subject |
//! |---|---|
//! | [`units`] | newtypes for block, inode and log sequence numbers |
//! | [`errno`] | POSIX error numbers |
//! | [`lock`] | locks with ranks, which define the lock order |
//! | [`line_alloc`] | an allocator for programs whose memory accesses are traced |
//! | [`memory`] | a memory budget that caches share |
//! | [`append_list`] | an append-only list with lock-free readers |
//! | [`pipeline`] | parallel work with ordered results |
//! | [`percpu`] | per-CPU state |
//! | [`prefetch`](mod@prefetch) | prefetch of memory into the CPU cache |
//! | [`process`] | signal mask and descriptors of the process |
//! | [`pooled`] | per-thread reuse of allocated memory |
//! | [`thread`] | starting threads, sleeping, yielding |
//! | [`refs`] | references, counted on each CPU if several take them |
//! | [`rcu`] | data that is read without locks while it changes |
//! | [`seqlock`] | words that are written under a lock and read without one |
//! | [`simulation`] | a deterministic scheduler for tests |
//! | [`sizes`] | parsing of sizes in bytes |
//! | [`slab`] | objects by key, whose users share no cache lines |
//! | [`stop`] | scoped threads that a panic stops together |
//! | [`sync`] | atomics, which a model checker can replace |
//! | [`weak_queue`] | a queue of objects that others own |
//! | [`time`], [`random`] | the clock and random numbers, which tests can replace |
//!
//! # Invariants
//! Nothing here knows the disk format: a unit is a number with a meaning, and `format` knows its on-disk encoding.

pub mod append_list;
pub mod errno;
pub mod line_alloc;
pub mod lock;
pub mod memory;
pub mod percpu;
pub mod pipeline;
pub mod pooled;
pub mod prefetch;
pub mod process;
pub mod random;
pub mod rcu;
pub mod refs;
pub mod seqlock;
pub mod simulation;
pub mod sizes;
pub mod slab;
pub mod stop;
pub mod sync;
pub mod thread;
pub mod time;
pub mod units;
pub mod weak_queue;

pub use append_list::AppendList;
pub use slab::{Inserted, Slab};
pub use units::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, FsBlock, Ino, Lsn};
pub use weak_queue::WeakQueue;
