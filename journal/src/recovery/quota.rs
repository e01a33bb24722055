//! Quota items, which are not replayed: Linux recomputes quota if it is enabled.

use format::log::item::ItemType;
use format::log::quota::parse_off;

use super::replay::{FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayResult};
use crate::assemble::RawLogItem;

/// Replay of a quota record, or of switching quota off.
pub struct QuotaReplay;

impl ReplayItem for QuotaReplay {
    fn first_pass(&self, item: &RawLogItem<'_>, state: &mut FirstPass) -> Result<(), ReplayFailure> {
        if item.kind == ItemType::QuotaOff {
            state.quotas_off |= parse_off(item.region(0))?;
        }
        Ok(())
    }

    fn second_pass(&self, _: &RawLogItem<'_>, _: &mut ReplayContext<'_>) -> ReplayResult {
        Ok(ReplayOutcome::Quota)
    }
}
