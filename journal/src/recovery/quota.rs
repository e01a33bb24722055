//! Items that are quota and left out: quota, which Linux recounts where it is in use.

use format::log::quota::parse_off;

use super::replay::{FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome};
use crate::assemble::RawLogItem;

/// A quota record.
pub struct DquotReplay;

impl ReplayItem for DquotReplay {
    fn second_pass(
        &self,
        _: &RawLogItem<'_>,
        _: &mut ReplayContext<'_>,
    ) -> Result<ReplayOutcome, ReplayFailure> {
        Ok(ReplayOutcome::Quota)
    }
}

/// Quota switched off.
pub struct QuotaOffReplay;

impl ReplayItem for QuotaOffReplay {
    fn first_pass(&self, item: &RawLogItem<'_>, state: &mut FirstPass) -> Result<(), ReplayFailure> {
        state.quotas_off |= parse_off(item.region(0))?;
        Ok(())
    }

    fn second_pass(
        &self,
        _: &RawLogItem<'_>,
        _: &mut ReplayContext<'_>,
    ) -> Result<ReplayOutcome, ReplayFailure> {
        Ok(ReplayOutcome::Quota)
    }
}
