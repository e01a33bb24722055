//! The Linux kernel and xfsprogs as judges of Xebec.

fn main() {}
