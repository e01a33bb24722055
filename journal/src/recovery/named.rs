//! Items that are named and left out: quota, which Linux recounts where it is in use.

use format::log::quota::parse_off;

use super::replay::{Context, Failure, FirstPass, Outcome, Replay};
use crate::assemble::RawItem;

/// A quota record.
pub struct DquotReplay;

impl Replay for DquotReplay {
    fn second_pass(&self, _: &RawItem<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(Outcome::Quota)
    }
}

/// Quota switched off.
pub struct QuotaOffReplay;

impl Replay for QuotaOffReplay {
    fn first_pass(&self, item: &RawItem<'_>, state: &mut FirstPass) -> Result<(), Failure> {
        state.quotas_off |= parse_off(item.region(0))?;
        Ok(())
    }

    fn second_pass(&self, _: &RawItem<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(Outcome::Quota)
    }
}
