//! Devices: files through io_uring or pread, memory, overlays, partitions, qcow2.

pub mod fsxattr;
