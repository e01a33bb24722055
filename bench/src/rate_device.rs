//! A device with the speed of a real one, for measurements of what waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use block::{Device, DeviceError, Durability, WriteRequest, WriteRun};

/// A device that writes so many bytes a second, whatever its base device takes. Reads and flushes are not delayed.
#[derive(Debug)]
pub struct RateDevice {
    base: Arc<dyn Device>,
    bytes_per_second: u64,
    /// When the writes that were given to it will be done.
    done: Mutex<Instant>,
}

impl RateDevice {
    /// `base`, with this rate of writes.
    pub fn new(base: Arc<dyn Device>, bytes_per_second: u64) -> Self {
        Self { base, bytes_per_second, done: Mutex::new(Instant::now()) }
    }

    /// Does a write, and returns when a device with this rate has done it after all writes that came before.
    fn write<R>(&self, bytes: u64, write: impl FnOnce() -> R) -> R {
        let duration = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let done = {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            *done = (*done).max(Instant::now()) + duration;
            *done
        };
        let result = write();
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
        result
    }
}

impl Device for RateDevice {
    block::forward!(base: size, logical_sector_size, is_read_only, read_at, flush);

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.write(buf.len() as u64, || self.base.write_at(offset, buf, durability))
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let bytes = writes.iter().map(|write| write.buf.len() as u64).sum();
        self.write(bytes, || self.base.write_many(writes))
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.write(bytes, || self.base.write_vectored(offset, parts))
    }

    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        let bytes = runs.iter().map(|run| run.length() as u64).sum();
        self.write(bytes, || self.base.write_runs(runs))
    }

    fn describe(&self) -> String {
        format!("{} (at {} MB/s)", self.base.describe(), self.bytes_per_second / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    #[test]
    fn writes_take_their_time_together() {
        let device = RateDevice::new(Arc::new(MemoryDevice::new(1 << 20)), 10 << 20);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for part in 0..4 {
                let device = &device;
                scope
                    .spawn(move || device.write_at(part << 18, &[1; 1 << 18], Durability::Buffered).unwrap());
            }
        });
        assert!(begin.elapsed() >= Duration::from_millis(100));
    }
}
