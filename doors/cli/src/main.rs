//! XFS images without root: inspect, check, extract.

fn main() {}
