//! What was written to one file and not synced yet: the part of a file that a power loss takes.

use std::collections::BTreeMap;

use super::backing::{Backing, Code};

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

/// Writes and truncations since the last sync, on top of what the disk holds.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// The file's length as programs see it, when it may differ from the one on disk.
    len: Option<u64>,
    /// From this offset on the disk's bytes were cut off.
    cut: Option<u64>,
    /// What was written, by offset; extents do not overlap.
    extents: BTreeMap<u64, Extent>,
}

#[derive(Debug)]
struct Extent {
    bytes: Vec<u8>,
    /// A sync failed after this was written: it can be read, but no later sync stores it.
    forgotten: bool,
}

impl Unsynced {
    /// The length as programs see it.
    pub(super) fn len(&self, backing: &mut dyn Backing) -> Result<u64, Code> {
        match self.len {
            Some(len) => Ok(len),
            None => backing.len(),
        }
    }

    /// Fills `buffer` from `offset` on; what lies behind the end becomes zero. Returns the number of bytes before the end.
    pub(super) fn read(&self, backing: &mut dyn Backing, buffer: &mut [u8], offset: u64) -> Result<usize, Code> {
        let on_disk = backing.len()?;
        let len = self.len.unwrap_or(on_disk);
        buffer.fill(0);
        let wanted = buffer.len();
        let within = |end: u64| usize::try_from(end.saturating_sub(offset)).map_or(wanted, |bytes| bytes.min(wanted));
        let available = within(len);
        let stored = within(on_disk.min(self.cut.unwrap_or(u64::MAX))).min(available);
        if stored > 0 {
            backing.read(&mut buffer[..stored], offset)?;
        }
        let end = offset + available as u64;
        for (&start, extent) in self.extents.range(..end).rev() {
            let extent_end = start + extent.bytes.len() as u64;
            if extent_end <= offset {
                break;
            }
            let (from, to) = (start.max(offset), extent_end.min(end));
            let source = &extent.bytes[index(from - start)..index(to - start)];
            buffer[index(from - offset)..index(to - offset)].copy_from_slice(source);
        }
        Ok(available)
    }

    pub(super) fn write(&mut self, backing: &mut dyn Backing, bytes: &[u8], offset: u64) -> Result<(), Code> {
        let len = self.len(backing)?;
        let end = offset + bytes.len() as u64;
        self.clear(offset, end);
        let extent = Extent {
            bytes: bytes.to_vec(),
            forgotten: false,
        };
        self.extents.insert(offset, extent);
        self.len = Some(len.max(end));
        Ok(())
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.clear(len, u64::MAX);
        self.len = Some(len);
        self.cut = Some(self.cut.map_or(len, |cut| cut.min(len)));
    }

    /// A sync: stores everything in the file below.
    pub(super) fn sync(&mut self, backing: &mut dyn Backing) -> Result<(), Code> {
        self.store(backing)?;
        self.extents.retain(|_, extent| extent.forgotten);
        self.cut = None;
        if self.extents.is_empty() {
            self.len = None;
        }
        Ok(())
    }

    fn store(&self, backing: &mut dyn Backing) -> Result<(), Code> {
        if let Some(cut) = self.cut
            && backing.len()? > cut
        {
            backing.truncate(cut)?;
        }
        for (&offset, extent) in self.extents.iter().filter(|(_, extent)| !extent.forgotten) {
            backing.write(&extent.bytes, offset)?;
        }
        match self.len {
            Some(len) if len != backing.len()? => backing.truncate(len),
            _ => Ok(()),
        }
    }

    /// A sync failed: the operating system may have dropped what it could not store, and does not say so again.
    pub(super) fn forget(&mut self) {
        for extent in self.extents.values_mut() {
            extent.forgotten = true;
        }
    }

    /// Stores the sectors (and the truncation) that `survives` picks: a disk stores unsynced writes in any order.
    pub(super) fn store_some(&self, backing: &mut dyn Backing, survives: &mut dyn FnMut() -> bool) -> Result<(), Code> {
        if let Some(cut) = self.cut
            && backing.len()? > cut
            && survives()
        {
            backing.truncate(cut)?;
        }
        for (&offset, extent) in self.extents.iter().filter(|(_, extent)| !extent.forgotten) {
            let mut at = 0;
            while at < extent.bytes.len() {
                let into = index((offset + at as u64) % SECTOR as u64);
                let end = (at + SECTOR - into).min(extent.bytes.len());
                if survives() {
                    backing.write(&extent.bytes[at..end], offset + at as u64)?;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Removes what the extents hold of a range.
    fn clear(&mut self, from: u64, to: u64) {
        let overlapping: Vec<u64> = self
            .extents
            .range(..to)
            .rev()
            .take_while(|(start, extent)| *start + extent.bytes.len() as u64 > from)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            let Some(Extent { mut bytes, forgotten }) = self.extents.remove(&start) else {
                continue;
            };
            let end = start + bytes.len() as u64;
            if end > to {
                let bytes = bytes.split_off(index(to - start));
                self.extents.insert(to, Extent { bytes, forgotten });
            }
            if start < from {
                bytes.truncate(index(from - start));
                self.extents.insert(start, Extent { bytes, forgotten });
            }
        }
    }
}

/// An offset within a buffer that lies in memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vfs::backing::Bytes;

    #[derive(Debug, Clone)]
    enum Op {
        Write(u64, Vec<u8>),
        Truncate(u64),
        Sync,
        Lose,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..2000u64, prop::collection::vec(any::<u8>(), 1..900)).prop_map(|(at, bytes)| Op::Write(at, bytes)),
            2 => (0..2500u64).prop_map(Op::Truncate),
            2 => Just(Op::Sync),
            1 => Just(Op::Lose),
        ]
    }

    proptest! {
        /// A file through the layer is a plain array of bytes, and a loss goes back to the array of the last sync.
        #[test]
        fn reads_see_writes_and_a_loss_goes_back_to_the_last_sync(ops in prop::collection::vec(op(), 1..40)) {
            let (mut disk, mut layer) = (Bytes::default(), Unsynced::default());
            let (mut seen, mut synced) = (Vec::new(), Vec::new());
            for op in ops {
                match op {
                    Op::Write(at, bytes) => {
                        layer.write(&mut disk, &bytes, at).expect("written");
                        let (at, end) = (index(at), index(at) + bytes.len());
                        if seen.len() < end {
                            seen.resize(end, 0);
                        }
                        seen[at..end].copy_from_slice(&bytes);
                    }
                    Op::Truncate(len) => {
                        layer.truncate(len);
                        seen.resize(index(len), 0);
                    }
                    Op::Sync => {
                        layer.sync(&mut disk).expect("synced");
                        synced.clone_from(&seen);
                    }
                    Op::Lose => {
                        layer = Unsynced::default();
                        seen.clone_from(&synced);
                    }
                }
                let mut all = vec![9; seen.len() + 7];
                prop_assert_eq!(layer.read(&mut disk, &mut all, 0).expect("read"), seen.len());
                prop_assert_eq!(&all[..seen.len()], &seen[..]);
                prop_assert_eq!(&all[seen.len()..], &[0; 7]);
                let from = seen.len() / 3;
                let mut part = vec![9; 100];
                let available = layer.read(&mut disk, &mut part, from as u64).expect("read");
                prop_assert_eq!(&part[..available], &seen[from..from + available]);
                prop_assert_eq!(&disk.0, &synced);
            }
        }
    }

    #[test]
    fn what_a_failed_sync_forgot_is_readable_and_never_stored() {
        let (mut disk, mut layer) = (Bytes::default(), Unsynced::default());
        layer.write(&mut disk, b"forgotten", 0).expect("written");
        layer.forget();
        layer.write(&mut disk, b"later", 9).expect("written");
        layer.sync(&mut disk).expect("synced");
        let mut seen = [0; 14];
        layer.read(&mut disk, &mut seen, 0).expect("read");
        assert_eq!(&seen, b"forgottenlater");
        assert_eq!(disk.0, b"\0\0\0\0\0\0\0\0\0later");
    }
}
