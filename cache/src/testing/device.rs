//! The device of the test volume, which checks each write.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use base::errno;
use block::{Device, DeviceError, Durability, Operation};

use super::{Op, Owner, Shared};

impl Shared {
    fn device_error(&self, operation: Operation, offset: u64, length: usize) -> DeviceError {
        let source = std::io::Error::from_raw_os_error(errno::EIO.get());
        DeviceError::Io { device: "test".into(), operation, offset, length: length as u64, source }
    }

    /// Checks that data goes to claimed blocks, or to blocks mapped once.
    fn check_write(&self, offset: u64, length: u64) {
        let state = self.lock();
        for block in offset >> self.block_log..=(offset + length - 1) >> self.block_log {
            let owner = state.owners[block as usize];
            assert!(
                matches!(owner, Owner::Claimed | Owner::Mapped(1)),
                "data goes to block {block}, which is {owner:?}"
            );
        }
    }
}

impl Device for Shared {
    fn size(&self) -> u64 {
        self.medium.size()
    }

    fn logical_sector_size(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.strike(Op::Read).map_err(|_| self.device_error(Operation::Read, offset, buf.len()))?;
        self.medium.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        assert!(!buf.is_empty(), "an empty write");
        self.check_write(offset, buf.len() as u64);
        self.untold().insert(thread::current().id());
        self.hooks.pause();
        self.writes.fetch_add(1, SeqCst);
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
        self.strike(Op::Write).map_err(|_| self.device_error(Operation::Write, offset, buf.len()))?;
        let bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if offset < bad.end && bad.start < offset + buf.len() as u64 {
            return Err(self.device_error(Operation::Write, offset, buf.len()));
        }
        let judged = self.judged.load(SeqCst);
        if judged {
            // A torn write.
            self.medium.write_at(offset, &buf[..buf.len() / 1024 * 512], how)?;
            self.judge();
        }
        self.medium.write_at(offset, buf, how)?;
        if judged {
            self.judge();
        }
        Ok(())
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.write_at(offset, &parts.concat(), Durability::Buffered)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn describe(&self) -> String {
        "test".into()
    }
}
