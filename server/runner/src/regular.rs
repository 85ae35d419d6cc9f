//! Opens regular files only, and says sizes in words. A named pipe or device is refused before it can block a read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Why a file could not be read whole.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It has more bytes than the limit.
    TooLarge,
    /// Everything else, "no regular file" included.
    Io(io::Error),
}

/// What a path that is neither a file nor absent is, as in "is a named pipe, no regular file".
pub(crate) fn not_regular(kind: fs::FileType) -> String {
    let what = if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "named pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    };
    format!("it is a {what}, no regular file")
}

/// Opens `path` to read, if it is a regular file. Neither a pipe nor a device is waited for.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let regular = |meta: fs::Metadata| match meta.is_file() {
        true => Ok(()),
        false => Err(io::Error::other(not_regular(meta.file_type()))),
    };
    // Before opening: to open a device can have an effect. After it: the path may lead elsewhere by then.
    regular(fs::metadata(path)?)?;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// All bytes of the regular file `path`, at most `limit` of them.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(ReadError::Io)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLarge);
    }
    Ok(bytes)
}

/// A number of bytes as limits are written: `16777216 bytes (16 MiB)`.
pub(crate) fn in_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS
        .iter()
        .find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((unit, size)) => format!("{bytes} bytes ({} {unit})", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_also_have_the_unit_that_fits_exactly() {
        assert_eq!(in_bytes(256 << 20), "268435456 bytes (256 MiB)");
        assert_eq!(in_bytes(2 << 30), "2147483648 bytes (2 GiB)");
        assert_eq!(in_bytes(1_500), "1500 bytes");
        assert_eq!(in_bytes(0), "0 bytes");
    }

    #[test]
    fn a_pipe_a_device_and_a_directory_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, what) in [
            (pipe.as_path(), "named pipe"),
            (Path::new("/dev/zero"), "device"),
            (dir.path(), "directory"),
        ] {
            let error = open(path).unwrap_err().to_string();
            assert_eq!(error, format!("it is a {what}, no regular file"));
        }
    }

    #[test]
    fn a_file_at_the_limit_is_read_and_one_above_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"1234").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"1234");
        assert!(matches!(read(&path, 3), Err(ReadError::TooLarge)));
    }
}
