//! Quota items, which are not replayed: Linux recomputes quota if it is enabled.

use format::log::quota::parse_off;

use super::replay::{FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome};
use crate::assemble::RawLogItem;

/// Replay of a quota record.
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

/// Replay of switching quota off.
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
