//! Sizes of records and reservations.

use super::super::sizes::*;
use proptest::prelude::*;

#[test]
fn iclog_sizes_are_checked_against_stripe_unit_and_log() {
    assert_eq!(LogSizes::new(10 << 20, 0, None).unwrap().buffer, 32 << 10);
    let striped = LogSizes::new(10 << 20, 64 << 10, None).unwrap();
    assert_eq!((striped.buffer, striped.headers, striped.record(1)), (64 << 10, 1024, 64 << 10));
    assert!(LogSizes::new(10 << 20, 64 << 10, Some(32 << 10)).is_err());
    assert!(LogSizes::new(10 << 20, 0, Some(48 << 10)).is_err());
    assert!(LogSizes::new(100 << 10, 0, None).is_err());
    assert_eq!(LogSizes::new(10 << 20, 0, Some(256 << 10)).unwrap().headers, 8 * 512);
}

proptest! {
    #[test]
    fn reservations_of_transactions_cover_their_checkpoint(
        transactions in prop::collection::vec(0u64..100_000, 1..40),
        shift in 0u32..4,
        unit in prop::sample::select(vec![0u32, 4096, 32 << 10]),
    ) {
        let sizes = LogSizes::new(64 << 20, unit, Some(32 << 10 << shift)).unwrap();
        let shares: u64 = transactions.iter().map(|t| t + sizes.records(*t) * sizes.per_record()).sum();
        prop_assert!(sizes.checkpoint(transactions.iter().sum()) <= sizes.fixed() + shares);
    }
}
