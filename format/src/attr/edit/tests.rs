//! Random changes of a leaf compared with a list; shortform attributes built and decoded.

use base::{Daddr, FileBlock, Ino};
use proptest::prelude::*;

use super::{leaf, shortform};
use crate::ForkBlock;
use crate::attr::leaf::AttrLeaf;
use crate::attr::shortform::AttrShortform;
use crate::attr::{Attr, AttrValue, Namespace};
use crate::checksum;
use crate::dabtree::CRC_OFFSET;
use crate::hash;
use crate::testing::{fixture, geometry};

const AT: ForkBlock = ForkBlock { ino: Ino(64), file_block: FileBlock(0), daddr: Daddr(800) };

fn attr<'a>(name: &'a [u8], value: &'a [u8], remote: bool) -> Attr<'a> {
    let value = match remote {
        true => AttrValue::Remote { block: FileBlock(7), length: value.len() as u32 },
        false => AttrValue::Inline(value),
    };
    Attr { namespace: Namespace::User, incomplete: false, name, value }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { name: u8, length: usize, value: usize, remote: bool },
    Remove(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert = (any::<u8>(), 1usize..40, 0usize..300, prop::bool::weighted(0.2))
        .prop_map(|(name, length, value, remote)| Step::Insert { name, length, value, remote });
    prop::collection::vec(prop_oneof![3 => insert, 2 => any::<usize>().prop_map(Step::Remove)], 1..80)
}

proptest! {
    #[test]
    fn a_leaf_matches_a_list_of_attributes(steps in steps(), kernels in any::<bool>()) {
        let geometry = geometry();
        let mut block = vec![0; 1024];
        let mut at = AT;
        if kernels {
            let fixture = fixture("attr-leaf");
            (block, at) = (fixture.bytes.clone(), fixture.at);
        } else {
            leaf::init(&mut block, &geometry, AT).unwrap();
        }
        let mut model = leaf::attributes(&block, &geometry).unwrap();
        for step in steps {
            match step {
                Step::Insert { name, length, value, remote } => {
                    let (name, value) = (vec![name.max(1); length], vec![9; value]);
                    let hash = hash::name(&name);
                    let item = leaf::LeafAttr::new(&attr(&name, &value, remote), hash).unwrap();
                    let index = model.partition_point(|item| item.hash < hash);
                    let used: usize = model.iter().map(leaf::LeafAttr::size).sum();
                    let fits = used + item.size() <= leaf::capacity(&geometry);
                    prop_assert_eq!(leaf::insert(&mut block, &geometry, index, &item), Ok(fits));
                    if fits {
                        model.insert(index, item);
                    }
                }
                Step::Remove(at) if !model.is_empty() => {
                    let at = at % model.len();
                    leaf::remove(&mut block, &geometry, at).unwrap();
                    model.remove(at);
                }
                Step::Remove(at) => prop_assert!(leaf::remove(&mut block, &geometry, at).is_err()),
            }
            checksum::store(&mut block, CRC_OFFSET);
            let view = AttrLeaf::verify(&block, &geometry, at).unwrap();
            prop_assert_eq!(view.audit(), Ok(()));
            prop_assert_eq!(&leaf::attributes(&block, &geometry).unwrap(), &model);
            let used: usize = model.iter().map(leaf::LeafAttr::size).sum();
            prop_assert_eq!(leaf::used(&block, &geometry), Ok(used));
        }
    }

    #[test]
    fn no_bytes_make_an_edit_panic(
        patches in prop::collection::vec((0usize..1024, any::<u8>()), 0..20),
        index in 0usize..20,
    ) {
        let geometry = geometry();
        let mut block = fixture("attr-leaf").bytes.clone();
        for (at, byte) in patches {
            block[at] = byte;
        }
        let item = leaf::LeafAttr::new(&attr(b"name", &[1; 60], false), 5).unwrap();
        let mut other = block.clone();
        let _ = leaf::insert(&mut block, &geometry, index, &item);
        let _ = leaf::remove(&mut other, &geometry, index);
        prop_assert_eq!((block.len(), other.len()), (1024, 1024));
    }
}

proptest! {
    #[test]
    fn setting_in_place_equals_rebuilding(
        there in prop::collection::vec((0u8..6, 0usize..20), 0..5),
        (name, length) in (0u8..6, 0usize..20),
        room in 0usize..200,
    ) {
        let geometry = geometry();
        let values = [[1; 20], [2; 20]];
        let names: Vec<_> = there.iter().map(|(name, _)| [*name + 1; 3]).collect();
        let old = names.iter().zip(&there).map(|(name, (_, length))| attr(name, &values[0][..*length], false));
        let mut area = shortform::build(old).unwrap();
        area.resize(area.len().max(room), 0);
        let (before, new_name) = (area.clone(), [name + 1; 3]);
        let new = attr(&new_name, &values[1][..length], false);
        let is = |attr: &Attr<'_>| attr.name == new.name;
        let chosen: Vec<_> = there.iter().filter(|(there, _)| *there == name).map(|(_, length)| *length).collect();
        let set = shortform::set(&mut area, &geometry, is, &new).unwrap();
        let anew = shortform::exchange(&before, &geometry, is, Some(new)).unwrap().unwrap();
        let in_place = match chosen[..] {
            [] => anew.len() <= before.len(),
            [old] => old == length,
            _ => false,
        };
        prop_assert_eq!(set, in_place);
        if !set {
            prop_assert_eq!(area, before);
            return Ok(());
        }
        let sorted = |bytes: &[u8]| {
            let mut all: Vec<_> = shortform::attributes(bytes, &geometry).unwrap().into_iter()
                .map(|attr| (attr.name.to_vec(), format!("{:?}", attr.value))).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&area), sorted(&anew));
        prop_assert_eq!(AttrShortform::verify(&area, &geometry).unwrap().audit(), Ok(()));
        prop_assert!(area[anew.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn shortform_attributes_keep_their_order() {
    let geometry = geometry();
    let (long, names) = ([7; 255], [&b"a"[..], b"other", b"third"]);
    let attributes: Vec<_> = names.iter().map(|name| attr(name, &long[..name.len()], false)).collect();
    let bytes = shortform::build(attributes.iter().copied()).unwrap();
    let sizes = attributes.iter().map(|attr| (attr.name.len(), attr.value.length()));
    assert_eq!(shortform::size(sizes), Some(bytes.len()));
    assert_eq!(AttrShortform::verify(&bytes, &geometry).unwrap().audit(), Ok(()));
    assert_eq!(shortform::attributes(&bytes, &geometry).unwrap(), attributes);
    assert_eq!(shortform::size([(1, 256)]), None);
    assert_eq!(shortform::build([attr(b"a", b"b", true)]), None);
    assert_eq!(shortform::attributes(&shortform::EMPTY, &geometry).unwrap(), []);
    assert_eq!(shortform::build([]).unwrap(), shortform::EMPTY);
    let [first, rest @ ..] = &attributes[..] else { panic!("some attributes") };
    let is_first = |attr: &Attr<'_>| attr == first;
    assert_eq!(shortform::find(&bytes, &geometry, is_first).unwrap(), Some(*first));
    let turned = shortform::exchange(&bytes, &geometry, is_first, Some(*first)).unwrap();
    assert_eq!(turned, shortform::build(rest.iter().copied().chain([*first])));
    let without = shortform::exchange(&bytes, &geometry, is_first, None).unwrap().unwrap();
    assert_eq!(Some(&without), shortform::build(rest.iter().copied()).as_ref());
    assert_eq!(shortform::find(&without, &geometry, is_first).unwrap(), None);
}
