//! Devices around others: methods that only call those of the device inside.

/// Implements methods of [`Device`](crate::Device) by those of a field. The others are written out; those of the trait
/// with a default call methods of the outer device if they are neither forwarded nor written out.
///
/// ```
/// use xebec_block::{Device, DeviceError, Durability, MemoryDevice, forward};
///
/// /// Loses what is written.
/// struct NullDevice(MemoryDevice);
///
/// impl Device for NullDevice {
///     forward!(0: size, logical_sector_size, is_read_only, read_at, flush, describe);
///
///     fn write_at(&self, _: u64, _: &[u8], _: Durability) -> Result<(), DeviceError> {
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    (@size $field:tt) => {
        fn size(&self) -> u64 {
            self.$field.size()
        }
    };
    (@logical_sector_size $field:tt) => {
        fn logical_sector_size(&self) -> u32 {
            self.$field.logical_sector_size()
        }
    };
    (@is_read_only $field:tt) => {
        fn is_read_only(&self) -> bool {
            self.$field.is_read_only()
        }
    };
    (@keeps_order $field:tt) => {
        fn keeps_order(&self) -> bool {
            self.$field.keeps_order()
        }
    };
    (@read_at $field:tt) => {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.read_at(offset, buf)
        }
    };
    (@write_at $field:tt) => {
        fn write_at(
            &self,
            offset: u64,
            buf: &[u8],
            durability: $crate::Durability,
        ) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.write_at(offset, buf, durability)
        }
    };
    (@flush $field:tt) => {
        fn flush(&self) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.flush()
        }
    };
    (@refresh_size $field:tt) => {
        fn refresh_size(&self) -> ::std::result::Result<u64, $crate::DeviceError> {
            self.$field.refresh_size()
        }
    };
    (@set_size $field:tt) => {
        fn set_size(&self, size: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.set_size(size)
        }
    };
    (@read_many $field:tt) => {
        fn read_many(&self, reads: &mut [$crate::ReadRequest<'_>]) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.read_many(reads)
        }
    };
    (@zero $field:tt) => {
        fn zero(&self, offset: u64, length: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            self.$field.zero(offset, length)
        }
    };
    (@discard $field:tt) => {
        fn discard(&self, offset: u64, length: u64) -> ::std::result::Result<bool, $crate::DeviceError> {
            self.$field.discard(offset, length)
        }
    };
    (@next_data $field:tt) => {
        fn next_data(
            &self,
            offset: u64,
        ) -> ::std::result::Result<::std::option::Option<::std::ops::Range<u64>>, $crate::DeviceError> {
            self.$field.next_data(offset)
        }
    };
    (@start_writeback $field:tt) => {
        fn start_writeback(&self, offset: u64, length: u64) {
            self.$field.start_writeback(offset, length);
        }
    };
    (@describe $field:tt) => {
        fn describe(&self) -> String {
            self.$field.describe()
        }
    };
    ($field:tt: $($method:ident),+) => {
        $($crate::forward!(@$method $field);)+
    };
}
