//! Compares id spaces with a map, and id sets with `BTreeSet`.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use tidemill_sketch::{IdSet, IdSpace, IdSpaceView, SketchError};

/// Generates typical ids: few distinct values, sequences, and all 64 bits.
fn ids() -> impl Strategy<Value = Vec<u64>> {
    let id = prop_oneof![0..50u64, any::<u64>(), (0..2000u64).prop_map(|n| n << 40 | n)];
    prop::collection::vec(id, 0..600)
}

fn encoded(space: &IdSpace) -> Vec<u8> {
    let mut bytes = Vec::new();
    space.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_space_numbers_ids_as_a_map_would(batches in prop::collection::vec(ids(), 0..4)) {
        let mut space = IdSpace::default();
        let mut singly = IdSpace::default();
        let mut model = HashMap::new();
        let mut order = Vec::new();
        for ids in &batches {
            let indexes = space.insert_all(ids).unwrap();
            prop_assert_eq!(indexes.len(), ids.len());
            for (id, index) in ids.iter().zip(indexes) {
                let expect = *model.entry(*id).or_insert_with(|| {
                    order.push(*id);
                    order.len() as u32 - 1
                });
                prop_assert_eq!(index, expect);
                prop_assert_eq!(singly.insert(*id), Ok(expect));
            }
        }
        prop_assert_eq!(space.len() as usize, order.len());
        for (index, id) in order.iter().enumerate() {
            prop_assert_eq!(space.id_of(index as u32), Some(*id));
            prop_assert_eq!(space.index_of(*id), Some(index as u32));
            let other = id ^ 1 << 63;
            prop_assert_eq!(space.index_of(other), model.get(&other).copied());
        }
        prop_assert_eq!(space.id_of(space.len()), None);

        let bytes = encoded(&space);
        prop_assert_eq!(&bytes, &encoded(&singly));
        let view = IdSpaceView::open(&bytes).unwrap();
        prop_assert_eq!(view.len(), space.len());
        let mut back = IdSpace::decode(&bytes).unwrap();
        prop_assert_eq!(&back, &space);
        prop_assert_eq!(encoded(&back), bytes.clone());
        for ids in &batches {
            let some: Vec<_> = ids.iter().flat_map(|id| [*id, !id]).collect();
            let expect: Vec<_> = some.iter().map(|id| model.get(id).copied()).collect();
            prop_assert_eq!(space.indexes_of(&some), expect.clone());
            prop_assert_eq!(some.iter().map(|id| view.index_of(*id)).collect::<Vec<_>>(), expect);
        }
        for (index, id) in order.iter().enumerate() {
            prop_assert_eq!(view.id_of(index as u32), Some(*id));
        }
        // A decoded space can grow.
        prop_assert_eq!(back.insert_all(&order).unwrap(), (0..space.len()).collect::<Vec<_>>());
    }

    #[test]
    fn damaged_spaces_are_refused_or_answer_something(
        ids in ids(), at in any::<prop::sample::Index>(), bit in 0..8u8, cut in any::<prop::sample::Index>()
    ) {
        let mut space = IdSpace::default();
        space.insert_all(&ids).unwrap();
        let bytes = encoded(&space);
        let cut = cut.index(bytes.len());
        prop_assert!(IdSpaceView::open(&bytes[..cut]).is_err());
        prop_assert!(IdSpace::decode(&bytes[..cut]).is_err());

        let mut flipped = bytes;
        let at = at.index(flipped.len());
        flipped[at] ^= 1u8 << bit;
        if let Ok(view) = IdSpaceView::open(&flipped) {
            for id in ids.iter().take(50) {
                if let Some(index) = view.index_of(*id) {
                    prop_assert_eq!(view.id_of(index), Some(*id));
                }
            }
        }
        let _ = IdSpace::decode(&flipped);
    }
}

#[test]
fn a_space_grows_through_many_doublings_and_pieces() {
    // Multiplication by an odd number is a bijection: no id repeats.
    let id = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut space = IdSpace::default();
    let count = 300_000u32;
    for start in (0..count).step_by(1000) {
        let ids: Vec<u64> = (start..start + 1000).map(|n| id(n.into())).collect();
        assert_eq!(space.insert_all(&ids).unwrap(), (start..start + 1000).collect::<Vec<_>>());
    }
    for n in (0..count).step_by(7) {
        assert_eq!(space.index_of(id(n.into())), Some(n));
        assert_eq!(space.id_of(n), Some(id(n.into())));
    }
    assert_eq!(space.index_of(id(count.into())), None);
    // Ids of 8 bytes, slots of at most 7.5, the segments and the last chunk.
    let bound = count as usize * 31 / 2 + 4096 * 32 + (8 << 16) + 4096;
    assert!(space.heap_bytes() <= bound, "{} > {bound}", space.heap_bytes());
}

#[test]
fn very_many_ids_together_are_numbered_once_each() {
    let ids: Vec<u64> = (0..150_000u64).map(|n| (n % 90_000).wrapping_mul(0x9e37_79b9)).collect();
    let mut space = IdSpace::default();
    space.insert_all(&ids[..100]).unwrap();
    let indexes = space.insert_all(&ids).unwrap();
    assert_eq!(space.len(), 90_000);
    assert!((0..100).eq(indexes[..100].iter().copied()));
    let mut seen = vec![false; 90_000];
    for (id, index) in ids.iter().zip(indexes) {
        assert_eq!(space.id_of(index), Some(*id));
        assert_eq!(space.index_of(*id), Some(index));
        seen[index as usize] = true;
    }
    assert!(seen.iter().all(|&seen| seen));
    assert_eq!(IdSpace::decode(&encoded(&space)), Ok(space));
}

#[test]
fn empty_space_owns_no_heap_memory() {
    let space = IdSpace::default();
    assert!(space.is_empty());
    assert_eq!((space.heap_bytes(), space.index_of(0), space.id_of(0)), (0, None, None));
    assert_eq!(space.indexes_of(&[1, 2]), [None, None]);
    assert_eq!(encoded(&space).len(), 16);
    assert_eq!(IdSpace::decode(&encoded(&space)), Ok(space));
}

#[test]
fn a_space_with_an_id_twice_is_refused() {
    let mut space = IdSpace::default();
    space.insert_all(&[10, 20]).unwrap();
    let mut bytes = encoded(&space);
    let end = bytes.len();
    bytes.copy_within(end - 16..end - 8, end - 8);
    assert!(IdSpaceView::open(&bytes).is_ok());
    assert!(matches!(IdSpace::decode(&bytes), Err(SketchError::Corrupt { .. })));
}

/// Generates sets for each form of storage: scattered, dense, runs, and far apart.
fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
    let few = prop::collection::btree_set(any::<u32>(), 0..50);
    let low = prop::collection::btree_set(0..3000u32, 0..1500);
    let runs = prop::collection::vec((0..200_000u32, 1..9000u32), 0..6)
        .prop_map(|runs| runs.into_iter().flat_map(|(start, len)| start..start + len).collect());
    prop_oneof![few, low, runs]
}

fn of(numbers: &BTreeSet<u32>) -> IdSet {
    numbers.iter().copied().collect()
}

fn to_bytes(set: &IdSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    set.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn operations_are_those_of_sets(a in numbers(), b in numbers(), optimized in any::<bool>()) {
        let (mut left, mut right) = (of(&a), of(&b));
        if optimized {
            left.optimize();
            right.optimize();
        }
        type Model = fn(&BTreeSet<u32>, &BTreeSet<u32>) -> BTreeSet<u32>;
        type Made = fn(&IdSet, &IdSet) -> IdSet;
        type Changed = fn(&mut IdSet, &IdSet);
        let operations: [(Model, Made, Changed); 4] = [
            (|a, b| a | b, |a, b| a | b, IdSet::union_with),
            (|a, b| a & b, |a, b| a & b, IdSet::intersect_with),
            (|a, b| a - b, |a, b| a - b, IdSet::subtract),
            (|a, b| a ^ b, |a, b| a ^ b, IdSet::symmetric_difference_with),
        ];
        for (model, made, change) in operations {
            let expect = model(&a, &b);
            let made = made(&left, &right);
            prop_assert_eq!(made.len(), expect.len() as u64);
            prop_assert!(made.iter().eq(expect.iter().copied()));
            prop_assert_eq!(&made, &of(&expect));
            let mut changed = left.clone();
            change(&mut changed, &right);
            prop_assert_eq!(changed.len(), expect.len() as u64);
            prop_assert_eq!(&changed, &made);
            prop_assert_eq!(to_bytes(&changed), to_bytes(&of(&expect)));
        }
        prop_assert_eq!(left.intersection_len(&right), a.intersection(&b).count() as u64);
        prop_assert_eq!(left.union_len(&right), a.union(&b).count() as u64);
        prop_assert_eq!(left == right, a == b);
    }

    #[test]
    fn numbers_come_and_go(start in numbers(), changes in prop::collection::vec((0..4000u32, any::<bool>()), 0..300)) {
        let (mut model, mut set) = (start.clone(), of(&start));
        for (number, insert) in changes {
            if insert {
                prop_assert_eq!(set.insert(number), model.insert(number));
            } else {
                prop_assert_eq!(set.remove(number), model.remove(&number));
            }
            prop_assert_eq!(set.contains(number), insert);
        }
        prop_assert_eq!(set.len(), model.len() as u64);
        prop_assert!(set.iter().eq(model.iter().copied()));
        prop_assert_eq!(set.is_empty(), model.is_empty());
    }

    #[test]
    fn a_set_comes_back_from_its_bytes_and_from_no_part_of_them(
        numbers in numbers(), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()
    ) {
        let set = of(&numbers);
        let bytes = to_bytes(&set);
        prop_assert_eq!(&IdSet::decode(&bytes).unwrap(), &set);
        let roaring = roaring::RoaringBitmap::deserialize_from(&bytes[..]).unwrap();
        prop_assert!(roaring.iter().eq(numbers.iter().copied()));

        prop_assert!(IdSet::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let mut longer = bytes.clone();
        longer.push(0);
        let trailing = matches!(IdSet::decode(&longer), Err(SketchError::TrailingBytes { .. }));
        prop_assert!(trailing);
        let mut flipped = bytes;
        let at = flip.index(flipped.len() * 8);
        flipped[at / 8] ^= 1 << (at % 8);
        let mut left = &flipped[..];
        let roaring = roaring::RoaringBitmap::deserialize_from(&mut left);
        let roaring = roaring.ok().filter(|_| left.is_empty());
        prop_assert_eq!(IdSet::decode(&flipped).is_ok(), roaring.is_some());
        if let Ok(set) = IdSet::decode(&flipped) {
            prop_assert!(roaring.is_some_and(|roaring| roaring.iter().eq(set.iter())));
            prop_assert_eq!(set.iter().count() as u64, set.len());
            prop_assert_eq!(IdSet::decode(&to_bytes(&set)).unwrap(), set);
        }
    }
}

#[test]
fn many_numbers_can_be_added_in_any_order() {
    for (factor, stride) in [(1, 1), (7919, 1), (7919, 40), (1, 100_000)] {
        let numbers = (0..150_000u32).map(|n| (n * factor % 150_001).wrapping_mul(stride));
        let (mut set, model) = (IdSet::new(), numbers.clone().collect::<BTreeSet<_>>());
        set.extend(numbers);
        assert_eq!(set, of(&model));
        assert_eq!(to_bytes(&set), to_bytes(&of(&model)));
        assert!(set.iter().eq(model), "{factor}, {stride}");
    }
}

#[test]
fn a_claim_of_many_containers_is_refused_before_there_is_room_for_them() {
    let check = |bytes: &[u8]| {
        assert!(matches!(IdSet::decode(bytes), Err(SketchError::Truncated { .. })), "{bytes:x?}");
    };
    check(&[]);
    check(&[0x3a, 0x30, 0, 0]);
    check(&[0x3a, 0x30, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    check(&[0x3b, 0x30, 0xff, 0xff, 1, 2, 3, 4]);
    let found = IdSet::decode(&[0x3c, 0x30, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(found, Err(SketchError::UnknownFormat { found: 0x3c, .. })));
}

/// A few bytes that claim 65,536 full containers must not become 512 MB of words.
#[test]
fn a_set_of_all_numbers_stays_as_small_as_its_bytes() {
    let mut bytes = vec![0x3b, 0x30, 0xff, 0xff];
    bytes.extend([0xff; 8192]);
    (0..=u16::MAX).for_each(|key| {
        bytes.extend(key.to_le_bytes());
        bytes.extend([0xff; 2]);
    });
    bytes.extend(vec![0; 4 * 65_536]);
    (0..=u16::MAX).for_each(|_| bytes.extend([1, 0, 0, 0, 0xff, 0xff]));
    let set = IdSet::decode(&bytes).unwrap();
    assert_eq!(set.len(), 1 << 32);
    assert!(set.heap_bytes() <= 2 * bytes.len());
    assert!(set.contains(u32::MAX));
    assert_eq!(set.union_len(&set), 1 << 32);
}

#[test]
fn ids_of_a_set_come_back_by_their_space() {
    let mut space = IdSpace::default();
    let mut of = |ids: &[u64]| space.insert_all(ids).unwrap().into_iter().collect::<IdSet>();
    let (left, right) = (of(&[9, 1 << 60, 5]), of(&[5, 7, 9]));
    let shared: Vec<u64> = space.ids_in_set(&(&left & &right)).collect();
    assert_eq!(shared, [9, 5]);
    let bytes = encoded(&space);
    let view = IdSpaceView::open(&bytes).unwrap();
    assert_eq!(view.ids_in_set(&(&left - &right)).collect::<Vec<_>>(), [1 << 60]);
}

/// One number far from the others must not cause words for all numbers in between.
#[test]
fn a_dense_set_with_a_number_far_away_stays_small() {
    let low: IdSet = (0..100_000).collect();
    let check = |set: &IdSet| {
        assert_eq!(set.len(), 100_001);
        assert!(set.heap_bytes() < 40_000, "{}", set.heap_bytes());
    };
    let far: IdSet = [u32::MAX].into_iter().collect();
    check(&(&low | &far));
    check(&(&far ^ &low));
    let mut set = low;
    set.insert(u32::MAX);
    check(&set);
}

#[test]
fn sign_flag_is_encoded_with_ids() {
    let mut space = IdSpace::default();
    space.insert_all(&[3, u64::MAX]).unwrap();
    let unsigned = encoded(&space);
    space.set_signed(true);
    let signed = encoded(&space);
    assert!(IdSpaceView::open(&signed).unwrap().is_signed());
    assert!(!IdSpaceView::open(&unsigned).unwrap().is_signed());
    assert_eq!(IdSpace::decode(&signed), Ok(space.clone()));
    assert_ne!(IdSpace::decode(&unsigned), Ok(space));
    let mut neither = signed;
    neither[1] = 2;
    assert!(matches!(IdSpaceView::open(&neither), Err(SketchError::Corrupt { .. })));
}
