use super::*;

#[test]
fn forced_changes_are_recovered() {
    for shards in [1, 3] {
        let volume = Volume::new(8192);
        make_blocks(&*volume.device, 10);
        let log = volume.open(&options(shards));
        for n in 1..=10 {
            bump(&log, n);
        }
        bump(&log, 3);
        log.force().unwrap();
        assert_eq!(on_disk(&*volume.device, 3), 0);
        let State::Dirty(dirty) = volume.state() else { panic!("{:?}", volume.state()) };
        assert_eq!(dirty.transactions, 1);
        assert_eq!(log.statistics().commits, 11);
        drop(log);
        replay(&volume.superblock, &*volume.device);
        assert_eq!((on_disk(&*volume.device, 3), on_disk(&*volume.device, 10)), (2, 1));
    }
}

#[test]
fn an_unmounted_log_is_clean_and_can_be_continued() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 5);
    for round in 1..=40 {
        let log = volume.open(&options(2));
        for n in 1..=5 {
            assert_eq!(bump(&log, n), round * 2 - 1);
            log.force().unwrap();
            bump(&log, n);
        }
        log.unmount().unwrap();
        assert!(matches!(volume.state(), State::Clean { discarded: None, .. }), "{:?}", volume.state());
        assert_eq!(on_disk(&*volume.device, 5), round * 2);
        assert_eq!(log.reserved(), 0);
    }
}

#[test]
fn a_force_without_changes_writes_nothing() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 1);
    let log = volume.open(&options(1));
    log.force().unwrap();
    assert_eq!(log.statistics().records, 0);
    bump(&log, 1);
    log.force().unwrap();
    log.force().unwrap();
    assert_eq!((log.statistics().records, log.statistics().pushes), (1, 1));
}

/// Writers on a nearly full volume got `EIO`: all free blocks waited for their freeing to become stable, and a log
/// force through the trait did nothing, because the log did not forward it.
#[test]
fn a_force_through_the_trait_makes_commits_stable() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 1);
    let log = volume.open(&options(1));
    let target: Arc<dyn CommitTarget> = log.clone();
    bump(&log, 1);
    target.force().unwrap();
    assert_eq!((log.shared.cil.progress.stable(), log.statistics().pushes), (1, 1));
}

#[test]
fn checkpoints_of_many_records_are_read_back_with_any_iclog_size() {
    for buffer_bytes in [32 << 10, 64 << 10, 256 << 10] {
        let volume = Volume::new(16384);
        make_blocks(&*volume.device, 400);
        let log = volume.open(&Options { buffer_bytes: Some(buffer_bytes), ..options(2) });
        for round in 1..=12u64 {
            for n in 1..=400 {
                let mut tx = log.begin(RESERVATION).unwrap();
                assert_eq!(count_up(&mut tx, n).unwrap(), round);
                let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
                tx.bytes_mut(id, 1024..4096).fill(round as u8);
                tx.commit(&mut []).unwrap();
            }
            log.force().unwrap();
        }
        let statistics = log.statistics();
        assert!(statistics.records > statistics.pushes, "{statistics:?}");
        drop(log);
        replay(&volume.superblock, &*volume.device);
        for n in 1..=400 {
            assert_eq!(on_disk(&*volume.device, n), 12);
        }
    }
}

#[test]
fn a_transaction_larger_than_the_log_is_refused() {
    let volume = Volume::new(2048);
    let log = volume.open(&options(1));
    let refused = log.begin(LogReservation { bytes: 4 << 20, transactions: 1 });
    assert_eq!(refused.err().unwrap().errno(), base::errno::ENOSPC);
    log.force().unwrap();
}

#[test]
fn an_exceeded_reservation_shuts_the_volume_down() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 8);
    let log = volume.open(&options(1));
    let mut tx = log.begin(LogReservation { bytes: 128, transactions: 1 }).unwrap();
    for n in 1..=8 {
        count_up(&mut tx, n).unwrap();
        let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
        tx.bytes_mut(id, 0..4096).fill(1);
    }
    let error = tx.commit(&mut []).unwrap_err().to_string();
    assert!(error.contains("left of the"), "{error}");
    assert!(log.force().is_err());
    drop(log);
    assert!(matches!(volume.state(), State::Clean { .. }));
}

#[test]
fn an_idle_log_is_written_back_and_covered() {
    let volume = Volume::new(2048);
    make_blocks(&*volume.device, 5);
    let log = volume.open(&Options { interval: Duration::from_millis(5), ..options(1) });
    for n in 1..=5 {
        bump(&log, n);
    }
    // The workload and two superblocks; nothing after that.
    while log.statistics().pushes < 3 || log.statistics().ail_items > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(log.statistics().pushes, 3);
    assert_eq!(on_disk(&*volume.device, 5), 1);
    let State::Dirty(dirty) = volume.state() else { panic!("{:?}", volume.state()) };
    assert_eq!(dirty.transactions, 2, "only superblocks would be replayed");
    drop(log);
    replay(&volume.superblock, &*volume.device);
    assert_eq!(on_disk(&*volume.device, 5), 1);
}
