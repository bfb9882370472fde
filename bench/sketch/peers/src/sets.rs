//! `sets`: two sets of one kind, seconds for each thing that is done with them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;

use roaring::RoaringTreemap;
use tidemill_sketch::{IdSet, IdSpace, IdSpaceView, Ids};

use crate::data::{Kind, Summary};
use crate::{Result, data, memory, timed};

/// A kind of set under measurement; itself it is what sets share.
trait Sets: Default {
    type Set;
    fn build(&mut self, ids: &[u64], kind: Kind) -> Self::Set;
    fn union(left: &Self::Set, right: &Self::Set) -> Self::Set;
    fn intersection(left: &Self::Set, right: &Self::Set) -> Self::Set;
    /// How many both have, without a new set where that can be.
    fn common(left: &Self::Set, right: &Self::Set) -> u64;
    fn summary(&self, set: &Self::Set) -> Summary;
    /// To one or more files of this folder.
    fn write(&self, set: &Self::Set, folder: &Path) -> Result<()>;
    /// From there, up to the first answer: whether the set has this id.
    fn open(folder: &Path, id: u64) -> Result<bool>;
}

pub fn run(peer: &str, kind: Kind, count: u64, folder: &Path) -> Result<()> {
    match peer {
        "tidemill" => measure::<IdSpace>(kind, count, folder),
        "tidemill-ids" => measure::<Sorted>(kind, count, folder),
        // Of numbers, as a space has given them.
        "tidemill-idset" if kind == Kind::Dense => measure::<Numbers>(kind, count, folder),
        "roaring" => measure::<Treemap>(kind, count, folder),
        "hashset" => measure::<Hash>(kind, count, folder),
        "hashbrown" => measure::<Brown>(kind, count, folder),
        "copy" => copy(count),
        _ => Err(format!("no set `{peer}` of such ids").into()),
    }
}

fn measure<S: Sets>(kind: Kind, count: u64, folder: &Path) -> Result<()> {
    let data = data::two(kind, count);
    let before = memory::allocated();
    let mut shared = S::default();
    let (first, left) = timed(|| shared.build(black_box(&data.sets[0]), kind));
    let (second, right) = timed(|| shared.build(black_box(&data.sets[1]), kind));
    let memory = memory::allocated() - before;

    let check = |what: &str, set: &S::Set, expected: Summary| {
        let found = shared.summary(set);
        if found == expected {
            Ok(())
        } else {
            Err(format!("the {what}: {found:?}, not {expected:?}"))
        }
    };
    let (union, set) = timed(|| S::union(black_box(&left), black_box(&right)));
    check("union", &set, data.either)?;
    drop(set);
    let (intersection, set) = timed(|| S::intersection(black_box(&left), black_box(&right)));
    check("intersection", &set, data.both)?;
    drop(set);
    let (common, found) = timed(|| S::common(black_box(&left), black_box(&right)));
    if found != data.both.count {
        return Err(format!("{found} in both, not {}", data.both.count).into());
    }

    let (write, written) = timed(|| shared.write(&left, folder));
    written?;
    let mut disk = 0;
    for file in fs::read_dir(folder)? {
        disk += file?.metadata()?.len();
    }
    drop((shared, left, right));
    let last = *data.sets[0].last().ok_or("no ids")?;
    let (open, found) = timed(|| S::open(folder, last));
    if !found? {
        return Err("an id is not found in the file".into());
    }
    println!(
        "{{\"s\": {{\"build\": {:.6}, \"union\": {union:.6}, \"intersection\": {intersection:.6}, \
         \"in both\": {common:.6}, \"write\": {write:.6}, \"open\": {open:.7}}}, \"memory\": {memory}, \"disk\": {disk}, \
         \"both\": {}, \"either\": {}, \"parity\": \"{:x}\"}}",
        first + second,
        data.both.count,
        data.either.count,
        data.both.parity,
    );
    Ok(())
}

/// The limit of a union: as many words are copied into new memory, and to memory that is there.
fn copy(count: u64) -> Result<()> {
    let words = vec![1u64; (count + count / 2).div_ceil(64) as usize];
    let (union, mut copied) = timed(|| black_box(&words).clone());
    let (intersection, ()) = timed(|| copied.copy_from_slice(black_box(&words)));
    black_box(copied);
    println!("{{\"s\": {{\"union\": {union:.6}, \"intersection\": {intersection:.6}}}}}");
    Ok(())
}

/// Ours: ids that have numbers, and sets of these.
impl Sets for IdSpace {
    type Set = IdSet;
    fn build(&mut self, ids: &[u64], _: Kind) -> IdSet {
        let (mut set, mut numbers) = (IdSet::new(), Vec::new());
        for ids in ids.chunks(1 << 20) {
            numbers.clear();
            self.insert_into(ids, &mut numbers).expect("there is room");
            set.extend(numbers.iter().copied());
        }
        set
    }
    fn union(left: &IdSet, right: &IdSet) -> IdSet {
        left | right
    }
    fn intersection(left: &IdSet, right: &IdSet) -> IdSet {
        left & right
    }
    fn common(left: &IdSet, right: &IdSet) -> u64 {
        left.intersection_len(right)
    }
    fn summary(&self, set: &IdSet) -> Summary {
        Summary::of(self.ids_of(set))
    }
    fn write(&self, set: &IdSet, folder: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        fs::write(folder.join("space"), &bytes)?;
        bytes.clear();
        set.encode(&mut bytes);
        Ok(fs::write(folder.join("set"), &bytes)?)
    }
    fn open(folder: &Path, id: u64) -> Result<bool> {
        // SAFETY: nobody else writes to this folder.
        let bytes = unsafe { memmap2::Mmap::map(&File::open(folder.join("space"))?)? };
        let space = IdSpaceView::open(&bytes)?;
        let set = IdSet::decode(&fs::read(folder.join("set"))?)?;
        Ok(space.index(id).is_some_and(|number| set.contains(number)))
    }
}

/// Ours: sets of numbers.
#[derive(Default)]
struct Numbers;

impl Sets for Numbers {
    type Set = IdSet;
    fn build(&mut self, ids: &[u64], _: Kind) -> IdSet {
        ids.iter().map(|id| *id as u32).collect()
    }
    fn union(left: &IdSet, right: &IdSet) -> IdSet {
        left | right
    }
    fn intersection(left: &IdSet, right: &IdSet) -> IdSet {
        left & right
    }
    fn common(left: &IdSet, right: &IdSet) -> u64 {
        left.intersection_len(right)
    }
    fn summary(&self, set: &IdSet) -> Summary {
        Summary::of(set.iter().map(u64::from))
    }
    fn write(&self, set: &IdSet, folder: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        Ok(fs::write(folder.join("set"), &bytes)?)
    }
    fn open(folder: &Path, id: u64) -> Result<bool> {
        Ok(IdSet::decode(&fs::read(folder.join("set"))?)?.contains(u32::try_from(id)?))
    }
}

/// Ours: ids as themselves, sorted.
#[derive(Default)]
struct Sorted;

impl Sets for Sorted {
    type Set = Ids;
    fn build(&mut self, ids: &[u64], _: Kind) -> Ids {
        let mut set = Ids::new();
        ids.chunks(1 << 20).for_each(|ids| set.add_all(ids));
        set.settle();
        set
    }
    fn union(left: &Ids, right: &Ids) -> Ids {
        let mut set = left.clone();
        set.union_with(right);
        set
    }
    fn intersection(left: &Ids, right: &Ids) -> Ids {
        let mut set = left.clone();
        set.intersect_with(right);
        set
    }
    fn common(left: &Ids, right: &Ids) -> u64 {
        left.intersection_len(right) as u64
    }
    fn summary(&self, set: &Ids) -> Summary {
        Summary::of(set.sorted().iter().copied())
    }
    fn write(&self, set: &Ids, folder: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        Ok(fs::write(folder.join("set"), &bytes)?)
    }
    fn open(folder: &Path, id: u64) -> Result<bool> {
        Ok(Ids::decode(&fs::read(folder.join("set"))?)?.contains(id))
    }
}

/// Compressed sets of 64-bit numbers.
#[derive(Default)]
struct Treemap;

impl Sets for Treemap {
    type Set = RoaringTreemap;
    fn build(&mut self, ids: &[u64], kind: Kind) -> RoaringTreemap {
        match kind {
            Kind::Random => ids.iter().copied().collect(),
            Kind::Dense => {
                RoaringTreemap::from_sorted_iter(ids.iter().copied()).expect("ascending")
            }
        }
    }
    fn union(left: &RoaringTreemap, right: &RoaringTreemap) -> RoaringTreemap {
        left | right
    }
    fn intersection(left: &RoaringTreemap, right: &RoaringTreemap) -> RoaringTreemap {
        left & right
    }
    fn common(left: &RoaringTreemap, right: &RoaringTreemap) -> u64 {
        left.intersection_len(right)
    }
    fn summary(&self, set: &RoaringTreemap) -> Summary {
        Summary::of(set.iter())
    }
    fn write(&self, set: &RoaringTreemap, folder: &Path) -> Result<()> {
        let mut bytes = Vec::with_capacity(set.serialized_size());
        set.serialize_into(&mut bytes)?;
        Ok(fs::write(folder.join("set"), &bytes)?)
    }
    fn open(folder: &Path, id: u64) -> Result<bool> {
        let bytes = fs::read(folder.join("set"))?;
        Ok(RoaringTreemap::deserialize_from(bytes.as_slice())?.contains(id))
    }
}

/// A hash set has no bytes of its own: its ids are written one after the other.
fn write_ids<'a>(ids: impl Iterator<Item = &'a u64>, folder: &Path) -> Result<()> {
    let bytes: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
    Ok(fs::write(folder.join("set"), bytes)?)
}

fn read_ids(folder: &Path) -> Result<impl Iterator<Item = u64>> {
    let bytes = fs::read(folder.join("set"))?;
    let ids: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
    Ok(ids.into_iter())
}

/// The same calls of two libraries.
macro_rules! hash_set {
    ($name:ident, $set:ty) => {
        #[derive(Default)]
        struct $name;

        impl Sets for $name {
            type Set = $set;
            fn build(&mut self, ids: &[u64], _: Kind) -> $set {
                ids.iter().copied().collect()
            }
            fn union(left: &$set, right: &$set) -> $set {
                let mut set = left.clone();
                set.extend(right);
                set
            }
            fn intersection(left: &$set, right: &$set) -> $set {
                left.intersection(right).copied().collect()
            }
            fn common(left: &$set, right: &$set) -> u64 {
                left.intersection(right).count() as u64
            }
            fn summary(&self, set: &$set) -> Summary {
                Summary::of(set.iter().copied())
            }
            fn write(&self, set: &$set, folder: &Path) -> Result<()> {
                write_ids(set.iter(), folder)
            }
            fn open(folder: &Path, id: u64) -> Result<bool> {
                Ok(read_ids(folder)?.collect::<$set>().contains(&id))
            }
        }
    };
}

hash_set!(Hash, HashSet<u64>);
hash_set!(Brown, hashbrown::HashSet<u64>);
