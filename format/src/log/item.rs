//! The contents of a transaction: its header, then items of one or more regions, the first of which identifies the
//! item.

use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU16, LeU32, OnDisk};

/// First word of a transaction header: `TRAN` in the writer's byte order.
pub const TRANSACTION_MAGIC: u32 = 0x5452_414e;
/// The only transaction type since delayed logging: a checkpoint.
pub const CHECKPOINT: u32 = 40;
/// Maximum number of regions of an item: a 64 KiB buffer with every second 128-byte chunk dirty, and its format.
pub const MAX_REGIONS: u16 = 257;
const NAME: &str = "log item";

crate::ondisk! {
    /// The region that starts a transaction.
    pub struct RawTransactionHeader("log transaction header", 16) {
        /// `TRAN`.
        magic: LeU32 = Hex,
        /// Type.
        kind as "type": LeU32 = Uint,
        /// Identifier, as in the operations.
        tid: LeU32 = Hex,
        /// Number of items that follow.
        num_items: LeU32 = Uint,
    }

    /// What the first region of every item begins with.
    pub struct RawItemHead("log item", 4) {
        /// Type.
        kind as "type": LeU16 = Hex,
        /// Regions of the item, this one included.
        size: LeU16 = Uint,
    }
}

macro_rules! item_types {
    ($($(#[$doc:meta])* $name:ident = $code:literal $short:literal $words:literal,)*) => {
        /// A type of log item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum ItemType { $( $(#[$doc])* $name = $code, )* }

        impl ItemType {
            /// Every type, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Decodes a type; `None` for unknown numbers.
            pub fn from_code(code: u16) -> Option<Self> {
                Some(match code { $($code => Self::$name,)* _ => return None })
            }

            /// The number on disk.
            pub fn code(self) -> u16 {
                self as u16
            }

            /// Short name, in lower case: `buf`, `efi`, `rui-rt`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $short),* }
            }

            /// Description for messages.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words),* }
            }
        }
    };
}

item_types! {
    /// Extent free intent.
    Efi = 0x1236 "efi" "extent free intent",
    /// Extent free done.
    Efd = 0x1237 "efd" "extent free done",
    /// Never written by Linux.
    Iunlink = 0x1238 "iunlink" "unlinked inode",
    /// An inode's core and forks.
    Inode = 0x123b "inode" "inode update",
    /// Parts of a buffer.
    Buffer = 0x123c "buf" "buffer",
    /// A quota record.
    Dquot = 0x123d "dquot" "quota update",
    /// Quota off.
    QuotaOff = 0x123e "quotaoff" "quota off",
    /// Inode creation.
    InodeCreate = 0x123f "icreate" "inode creation",
    /// Reverse-mapping update intent.
    Rui = 0x1240 "rui" "reverse-mapping update intent",
    /// Reverse-mapping update done.
    Rud = 0x1241 "rud" "reverse-mapping update done",
    /// Reference-count update intent.
    Cui = 0x1242 "cui" "reference-count update intent",
    /// Reference-count update done.
    Cud = 0x1243 "cud" "reference-count update done",
    /// Extent map update intent.
    Bui = 0x1244 "bui" "extent map update intent",
    /// Extent map update done.
    Bud = 0x1245 "bud" "extent map update done",
    /// Attribute update intent.
    Attri = 0x1246 "attri" "attribute update intent",
    /// Attribute update done.
    Attrd = 0x1247 "attrd" "attribute update done",
    /// Range exchange intent.
    Xmi = 0x1248 "xmi" "range exchange intent",
    /// Range exchange done.
    Xmd = 0x1249 "xmd" "range exchange done",
    /// `Efi` on the realtime device.
    EfiRt = 0x124a "efi-rt" "realtime extent free intent",
    /// `Efd` on the realtime device.
    EfdRt = 0x124b "efd-rt" "realtime extent free done",
    /// `Rui` on the realtime device.
    RuiRt = 0x124c "rui-rt" "realtime reverse-mapping update intent",
    /// `Rud` on the realtime device.
    RudRt = 0x124d "rud-rt" "realtime reverse-mapping update done",
    /// `Cui` on the realtime device.
    CuiRt = 0x124e "cui-rt" "realtime reference-count update intent",
    /// `Cud` on the realtime device.
    CudRt = 0x124f "cud-rt" "realtime reference-count update done",
}

impl ItemType {
    /// The intent type of a done item type; `None` for other types.
    pub fn answers(self) -> Option<Self> {
        Some(match self {
            Self::Efd => Self::Efi,
            Self::Rud => Self::Rui,
            Self::Cud => Self::Cui,
            Self::Bud => Self::Bui,
            Self::Attrd => Self::Attri,
            Self::Xmd => Self::Xmi,
            Self::EfdRt => Self::EfiRt,
            Self::RudRt => Self::RuiRt,
            Self::CudRt => Self::CuiRt,
            _ => return None,
        })
    }
}

impl std::fmt::Display for ItemType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Type and number of regions of an item, from its first region.
pub fn head(region: &[u8]) -> Result<(ItemType, u16), Damage> {
    let raw =
        RawItemHead::view(region).ok_or_else(|| Damage::short(NAME, RawItemHead::SIZE, region.len()))?;
    let code = raw.kind.get();
    let kind = ItemType::from_code(code)
        .ok_or_else(|| Damage::new(NAME, "type", "a known type of log item", format_args!("{code:#x}")))?;
    let size = raw.size.get();
    ensure!((1..=MAX_REGIONS).contains(&size), NAME, "size", format_args!("1 to {MAX_REGIONS}"), size);
    Ok((kind, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_types_decode_and_each_done_type_follows_its_intent() {
        for kind in ItemType::ALL {
            assert_eq!(ItemType::from_code(kind.code()), Some(*kind));
            if let Some(intent) = kind.answers() {
                assert_eq!(intent.code() + 1, kind.code());
            }
        }
        assert_eq!(ItemType::from_code(0x1239), None);
    }

    #[test]
    fn an_item_without_regions_is_refused() {
        assert_eq!(head(&[0x3c, 0x12, 2, 0]), Ok((ItemType::Buffer, 2)));
        assert_eq!(head(&[0x3c, 0x12, 0, 0]).unwrap_err().field(), "size");
        assert_eq!(head(&[0x3c, 0x12, 0xff, 0xff]).unwrap_err().field(), "size");
        assert_eq!(head(&[1, 2, 1, 0]).unwrap_err().field(), "type");
        assert!(head(&[1]).is_err());
    }
}
