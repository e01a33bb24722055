//! Which folios reclaim drops, and that it writes none.

use std::sync::Arc;

use base::memory::Share;
use base::percpu;

use super::{cache, file};
use crate::folio::FOLIO_BYTES;
use crate::testing::Volume;
use crate::{Cache, Contents, DirtyLimit, Options, ReclaimPolicy};

const FOLIO: u64 = FOLIO_BYTES as u64;
/// Folios that fit the cache.
const FOLIOS: u64 = 64;

fn written(volume_cache: &Arc<Cache<Volume>>, ino: u64, folios: u64) -> Arc<Contents<Volume>> {
    let contents = file(volume_cache, ino);
    for folio in 0..folios {
        contents.write(folio * FOLIO, &vec![ino as u8; FOLIO_BYTES]).unwrap();
        contents.flush(0..u64::MAX).unwrap();
    }
    contents
}

/// Reads the first page of each folio.
fn read(contents: &Contents<Volume>, folios: u64) {
    for folio in 0..folios {
        contents.read(folio * FOLIO, &mut [0; 4096]).unwrap();
    }
}

/// Reads all pages of each folio in turn, as a stream does.
fn stream(contents: &Contents<Volume>, folios: std::ops::Range<u64>) {
    for page in folios.start * 16..folios.end * 16 {
        contents.read(page * 4096, &mut [0; 4096]).unwrap();
    }
}

#[test]
fn a_stream_does_not_evict_what_is_used() {
    // One list.
    percpu::override_current(Some(0));
    let volume = Volume::new(12, 40_000);
    let volume_cache = cache(&volume, FOLIOS * (FOLIO + 256));
    let large = written(&volume_cache, 2, 20 * FOLIOS);
    let hot = written(&volume_cache, 1, FOLIOS / 4);
    let misses = || volume_cache.statistics().misses;
    // Used again, with some other data in between.
    stream(&large, 0..FOLIOS / 4);
    read(&hot, FOLIOS / 4);
    stream(&large, FOLIOS / 4..FOLIOS / 2);
    read(&hot, FOLIOS / 4);
    for round in 1..19 {
        stream(&large, round * FOLIOS..(round + 1) * FOLIOS);
        let before = misses();
        read(&hot, FOLIOS / 4);
        // The first time, reclaim may have examined some before they were used again.
        assert!(misses() == before || round <= 2, "round {round}: the stream evicted used data");
    }
}

#[test]
fn what_is_no_longer_used_leaves() {
    // One list.
    percpu::override_current(Some(0));
    let volume = Volume::new(12, 40_000);
    let volume_cache = cache(&volume, FOLIOS * (FOLIO + 256));
    let first = written(&volume_cache, 1, FOLIOS / 2);
    let second = written(&volume_cache, 2, FOLIOS / 2);
    let large = written(&volume_cache, 3, 20 * FOLIOS);
    let use_often = |contents: &Contents<Volume>, from: u64| {
        for round in 0..12 {
            read(contents, FOLIOS / 2);
            stream(&large, from + round * FOLIOS / 2..from + (round + 1) * FOLIOS / 2);
        }
        let before = volume_cache.statistics().misses;
        read(contents, FOLIOS / 2);
        volume_cache.statistics().misses - before
    };
    assert_eq!(use_often(&first, 0), 0);
    // A few may have left, as both halves do not fit together with a stream.
    let misses = use_often(&second, 8 * FOLIOS);
    assert!(misses <= FOLIOS / 8, "{misses} misses of the second half");
    let left = (0..FOLIOS / 2).filter(|folio| first.find_folio(*folio).is_some()).count() as u64;
    assert!(left <= FOLIOS / 8, "{left} folios of the first half stayed");
}

/// Files that are made and removed, without a lack of memory, left entries in the lists for ever.
#[test]
fn dropped_folios_leave_the_lists() {
    let volume = Volume::new(12, 40_000);
    let volume_cache = cache(&volume, 1 << 30);
    let stays = file(&volume_cache, 1);
    stays.write(0, &[1; 4096]).unwrap();
    for ino in 2..2000 {
        let contents = file(&volume_cache, ino);
        contents.write(0, &[1; 4096]).unwrap();
        contents.forget();
    }
    let listed: usize = volume_cache.folios.iter().map(|queue| queue.lock().len()).sum();
    assert!(listed <= 64 * volume_cache.folios.iter().count(), "{listed} entries for one folio");
    stays.forget();
}

/// A cache of four folios that are all dirty, as there is no flusher, with a folio less of memory than before.
fn all_dirty(policy: ReclaimPolicy) -> (Volume, Arc<Cache<Volume>>, Arc<Contents<Volume>>) {
    let volume = Volume::new(12, 4000);
    let options = Options { reclaim: policy, dirty: Some(DirtyLimit::Percent(100)), ..Options::default() };
    let memory = Share::alone(4 * (FOLIO + 256) + 4096);
    let volume_cache = Cache::new(volume.clone(), volume.device(), memory, options);
    let dirty = file(&volume_cache, 1);
    for folio in 0..4 {
        dirty.write(folio * FOLIO, &[1; FOLIO_BYTES]).unwrap();
    }
    volume_cache.memory.add(FOLIO);
    volume_cache.reclaim(volume_cache.memory.limit());
    assert!(volume_cache.statistics().dirty_met > 0, "{:?}", volume_cache.statistics());
    (volume, volume_cache, dirty)
}

#[test]
fn by_default_reclaim_writes_nothing_and_drops_a_dirty_folio_when_it_is_clean() {
    let (volume, volume_cache, dirty) = all_dirty(ReclaimPolicy::Never);
    let before = volume_cache.statistics();
    assert_eq!(before.written_by_reclaim, 0);
    let memory = before.memory_bytes;
    dirty.flush(0..u64::MAX).unwrap();
    let after = volume_cache.statistics();
    assert!(after.dropped_when_clean > 0 && after.memory_bytes < memory, "{after:?}");
    assert_eq!(volume.writes(), after.plug.writes, "all writes are writeback's");
    volume_cache.memory.sub(FOLIO);
    stream(&dirty, 0..4);
    dirty.forget();
}

#[test]
fn other_policies_write_from_reclaim() {
    for policy in [ReclaimPolicy::WriteFromDirect, ReclaimPolicy::OnlyInTrouble] {
        let (_, volume_cache, dirty) = all_dirty(policy);
        volume_cache.memory.sub(FOLIO);
        let statistics = volume_cache.statistics();
        assert!(statistics.written_by_reclaim >= FOLIO, "{policy:?}: {statistics:?}");
        dirty.forget();
    }
}

/// In trouble is who finds too few clean folios in a whole round.
#[test]
fn out_of_trouble_only_direct_reclaim_writes() {
    let writes = |policy| {
        let volume = Volume::new(12, 40_000);
        let options =
            Options { reclaim: policy, dirty: Some(DirtyLimit::Percent(100)), ..Options::default() };
        let memory = Share::alone(FOLIOS * (FOLIO + 256));
        let volume_cache = Cache::new(volume.clone(), volume.device(), memory, options);
        let clean = written(&volume_cache, 2, 4 * FOLIOS);
        let dirty = file(&volume_cache, 1);
        dirty.write(0, &[1; FOLIO_BYTES]).unwrap();
        stream(&clean, 0..4 * FOLIOS);
        let written = volume_cache.statistics().written_by_reclaim;
        dirty.forget();
        written
    };
    assert_eq!(writes(ReclaimPolicy::WriteFromDirect), FOLIO);
    assert_eq!((writes(ReclaimPolicy::OnlyInTrouble), writes(ReclaimPolicy::Never)), (0, 0));
}

/// Dirty folios of one CPU were examined again and again, until the limit of a round: clean ones of another CPU stayed.
#[test]
fn dirty_folios_do_not_hide_clean_ones_of_another_cpu() {
    let volume = Volume::new(12, 40_000);
    let options = Options { dirty: Some(DirtyLimit::Percent(100)), ..Options::default() };
    let memory = Share::alone(400 * (FOLIO + 256));
    let volume_cache = Cache::new(volume.clone(), volume.device(), memory, options);
    percpu::override_current(Some(1));
    let clean = written(&volume_cache, 2, 100);
    percpu::override_current(Some(0));
    let dirty = file(&volume_cache, 1);
    for folio in 0..200 {
        dirty.write(folio * FOLIO, &[1; FOLIO_BYTES]).unwrap();
    }
    volume_cache.reclaim(0);
    assert!(volume_cache.statistics().dropped >= 10, "{:?}", volume_cache.statistics());
    percpu::override_current(None);
    clean.forget();
    dirty.forget();
}

/// Dropped folios changed the order of the others.
#[test]
fn the_oldest_folio_is_the_next_one_also_after_others_were_removed() {
    percpu::override_current(Some(0));
    let volume = Volume::new(12, 40_000);
    let volume_cache = cache(&volume, 1 << 30);
    let contents = file(&volume_cache, 1);
    for folio in 0..100 {
        contents.write(folio * FOLIO, &[1; 4096]).unwrap();
        let removed = file(&volume_cache, 1000 + folio);
        for n in 0..3 {
            removed.write(n * FOLIO, &[1; 4096]).unwrap();
        }
        removed.forget();
    }
    contents.flush(0..u64::MAX).unwrap();
    let (_, queue) = volume_cache.folios.local();
    let order =
        std::iter::from_fn(|| queue.lock().next(0)).filter_map(|(folio, _)| Some(folio.upgrade()?.index));
    assert!(order.eq(0..100));
    percpu::override_current(None);
}
