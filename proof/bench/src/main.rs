//! Xebec beside its peers, in one run, by ratio.

fn main() {}
