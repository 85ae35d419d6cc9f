//! The file below the layer, as the layer's safe part sees it.

/// A SQLite result code.
pub(super) type Code = i32;
/// Success.
pub(super) const OK: Code = rusqlite::ffi::SQLITE_OK;

/// The real file.
pub(super) trait Backing {
    /// Reads bytes that lie before the end.
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Code>;
    /// Writes, and extends the file when needed.
    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Code>;
    /// Cuts or extends to `len` bytes.
    fn truncate(&mut self, len: u64) -> Result<(), Code>;
    /// Waits until everything is on the disk. `flags` are SQLite's.
    fn sync(&mut self, flags: i32) -> Code;
    /// Length in bytes.
    fn len(&mut self) -> Result<u64, Code>;
}

/// A plain file, for what survives a power loss.
#[derive(Debug)]
pub(super) struct Plain(pub(super) std::fs::File);

impl Backing for Plain {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Code> {
        use std::os::unix::fs::FileExt;
        self.0
            .read_exact_at(buffer, offset)
            .map_err(|_| rusqlite::ffi::SQLITE_IOERR_READ)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        use std::os::unix::fs::FileExt;
        self.0
            .write_all_at(bytes, offset)
            .map_err(|_| rusqlite::ffi::SQLITE_IOERR_WRITE)
    }

    fn truncate(&mut self, len: u64) -> Result<(), Code> {
        self.0.set_len(len).map_err(|_| rusqlite::ffi::SQLITE_IOERR_TRUNCATE)
    }

    fn sync(&mut self, _flags: i32) -> Code {
        self.0.sync_all().map_or(rusqlite::ffi::SQLITE_IOERR_FSYNC, |()| OK)
    }

    fn len(&mut self) -> Result<u64, Code> {
        self.0
            .metadata()
            .map(|meta| meta.len())
            .map_err(|_| rusqlite::ffi::SQLITE_IOERR_FSTAT)
    }
}

/// A file in memory.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

#[cfg(test)]
impl Backing for Bytes {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Code> {
        let from = usize::try_from(offset).expect("small");
        buffer.copy_from_slice(&self.0[from..from + buffer.len()]);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        let from = usize::try_from(offset).expect("small");
        let end = from + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[from..end].copy_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<(), Code> {
        self.0.resize(usize::try_from(len).expect("small"), 0);
        Ok(())
    }

    fn sync(&mut self, _flags: i32) -> Code {
        OK
    }

    fn len(&mut self) -> Result<u64, Code> {
        Ok(self.0.len() as u64)
    }
}
