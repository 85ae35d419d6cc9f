//! File system functions; relative paths start at the project. Errors carry Node's `code`, `syscall` and `path`.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use rquickjs::{Array, Ctx, Exception, Function, Object, Result, TypedArray};

use super::core::view;
use super::throw_io;
use crate::regular::in_bytes;
use crate::script::shared::Shared;

/// Access to the file system, behind the gate.
#[derive(Clone)]
struct Files(Rc<Shared>);

impl Files {
    fn path(&self, ctx: &Ctx<'_>, path: &str) -> Result<PathBuf> {
        self.0.effect(ctx, "node:fs")?;
        if path.contains('\0') {
            return Err(Exception::throw_type(ctx, "a path must not contain null bytes"));
        }
        Ok(self.0.options.project.join(path))
    }

    /// Runs one operation on `path`; `call` is its name in errors.
    fn on<T>(&self, ctx: &Ctx<'_>, path: &str, call: &str, run: impl FnOnce(&Path) -> io::Result<T>) -> Result<T> {
        let full = self.path(ctx, path)?;
        run(&full).map_err(|error| throw_io(ctx, &error, call, path))
    }

    fn read<'js>(&self, ctx: &Ctx<'js>, path: &str) -> Result<TypedArray<'js, u8>> {
        let most = self.0.options.memory_limit as u64;
        let bytes = self.on(ctx, path, "open", |full| {
            let mut file = fs::File::open(full)?;
            if file.metadata()?.is_dir() {
                return Err(io::Error::from_raw_os_error(libc::EISDIR));
            }
            let mut bytes = Vec::new();
            Read::by_ref(&mut file).take(most + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        })?;
        if bytes.len() as u64 > most {
            return Err(Exception::throw_range(
                ctx,
                &format!(
                    "'{path}' is larger than the memory that scripts may use, {}",
                    in_bytes(most)
                ),
            ));
        }
        TypedArray::new_copy(ctx.clone(), bytes)
    }
}

macro_rules! native {
    ($ctx:expr, $host:expr, $files:expr, $name:literal, |$at:ident, $c:ident $(, $arg:ident : $type:ty)*| -> $out:ty $body:block) => {{
        let $at = $files.clone();
        $host.set($name, Function::new($ctx.clone(), move |$c: Ctx<'js> $(, $arg: $type)*| -> Result<$out> { $body })?)?;
    }};
}

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let files = Files(Rc::clone(shared));
    content(ctx, host, &files)?;
    directories(ctx, host, &files)?;
    links(ctx, host, &files)?;
    attributes(ctx, host, &files)
}

fn content<'js>(ctx: &Ctx<'js>, host: &Object<'js>, files: &Files) -> Result<()> {
    native!(ctx, host, files, "fsRead", |at,
                                         ctx,
                                         path: String|
     -> TypedArray<'js, u8> {
        at.read(&ctx, &path)
    });
    native!(ctx, host, files, "fsWrite", |at,
                                          ctx,
                                          path: String,
                                          bytes: TypedArray<'js, u8>,
                                          flag: String,
                                          mode: u32|
     -> () {
        let bytes = view(&ctx, &bytes)?;
        at.on(&ctx, &path, "open", |full| {
            let mut options = fs::OpenOptions::new();
            options.write(true).mode(mode);
            match flag.as_str() {
                "a" => options.append(true).create(true),
                "ax" => options.append(true).create_new(true),
                "wx" => options.create_new(true),
                "r+" => options.create(false),
                _ => options.create(true).truncate(true),
            };
            options.open(full)?.write_all(bytes)
        })
    });
    native!(ctx, host, files, "fsCopy", |at,
                                         ctx,
                                         from: String,
                                         to: String,
                                         exclusive: bool|
     -> () {
        let target = at.path(&ctx, &to)?;
        at.on(&ctx, &from, "copyfile", |full| {
            if exclusive && target.symlink_metadata().is_ok() {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            fs::copy(full, &target).map(drop)
        })
    });
    native!(ctx, host, files, "fsTruncate", |at,
                                             ctx,
                                             path: String,
                                             length: f64|
     -> () {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a non-negative integer"
        )]
        let length = length.max(0.0) as u64;
        at.on(&ctx, &path, "open", |full| {
            fs::OpenOptions::new().write(true).open(full)?.set_len(length)
        })
    });
    native!(ctx, host, files, "fsRename", |at,
                                           ctx,
                                           from: String,
                                           to: String|
     -> () {
        let target = at.path(&ctx, &to)?;
        at.on(&ctx, &from, "rename", |full| fs::rename(full, &target))
    });
    native!(ctx, host, files, "fsUnlink", |at, ctx, path: String| -> () {
        at.on(&ctx, &path, "unlink", |full| fs::remove_file(full))
    });
    Ok(())
}

fn directories<'js>(ctx: &Ctx<'js>, host: &Object<'js>, files: &Files) -> Result<()> {
    native!(ctx, host, files, "fsReaddir", |at, ctx, path: String| -> Array<'js> {
        let mut entries = at.on(&ctx, &path, "scandir", |full| {
            fs::read_dir(full)?
                .map(|entry| {
                    let entry = entry?;
                    Ok((
                        entry.file_name().to_string_lossy().into_owned(),
                        kind(entry.file_type()?),
                    ))
                })
                .collect::<io::Result<Vec<_>>>()
        })?;
        entries.sort();
        let out = Array::new(ctx.clone())?;
        for (index, (name, kind)) in entries.into_iter().enumerate() {
            let pair = Array::new(ctx.clone())?;
            pair.set(0, name)?;
            pair.set(1, kind)?;
            out.set(index, pair)?;
        }
        Ok(out)
    });
    native!(ctx, host, files, "fsMkdir", |at,
                                          ctx,
                                          path: String,
                                          recursive: bool,
                                          mode: u32|
     -> Option<String> {
        at.on(&ctx, &path, "mkdir", |full| {
            let first = recursive.then(|| first_missing(full)).flatten();
            if recursive && full.is_dir() {
                return Ok(None);
            }
            fs::DirBuilder::new().recursive(recursive).mode(mode).create(full)?;
            Ok(first.map(|path| path.to_string_lossy().into_owned()))
        })
    });
    native!(ctx, host, files, "fsRmdir", |at, ctx, path: String| -> () {
        at.on(&ctx, &path, "rmdir", |full| fs::remove_dir(full))
    });
    native!(ctx, host, files, "fsRm", |at,
                                       ctx,
                                       path: String,
                                       recursive: bool,
                                       force: bool|
     -> () {
        at.on(&ctx, &path, "rm", |full| {
            let done = match full.symlink_metadata() {
                Ok(meta) if meta.is_dir() && recursive => fs::remove_dir_all(full),
                Ok(meta) if meta.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
                Ok(_) => fs::remove_file(full),
                Err(error) => Err(error),
            };
            match done {
                Err(error) if force && error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        })
    });
    native!(ctx, host, files, "fsMkdtemp", |at, ctx, prefix: String| -> String {
        for _ in 0..16 {
            let id = uuid::Uuid::new_v4().simple().to_string();
            let path = format!("{prefix}{}", &id[..6]);
            match at.on(&ctx, &path, "mkdtemp", |full| {
                match fs::DirBuilder::new().mode(0o700).create(full) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                    other => other.map(|()| true),
                }
            }) {
                Ok(true) => return Ok(path),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
        Err(throw_io(
            &ctx,
            &io::Error::from_raw_os_error(libc::EEXIST),
            "mkdtemp",
            &prefix,
        ))
    });
    Ok(())
}

fn first_missing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .take_while(|ancestor| !ancestor.exists())
        .last()
        .map(Path::to_path_buf)
}

fn links<'js>(ctx: &Ctx<'js>, host: &Object<'js>, files: &Files) -> Result<()> {
    native!(ctx, host, files, "fsRealpath", |at, ctx, path: String| -> String {
        at.on(&ctx, &path, "realpath", |full| {
            Ok(full.canonicalize()?.to_string_lossy().into_owned())
        })
    });
    native!(ctx, host, files, "fsReadlink", |at, ctx, path: String| -> String {
        at.on(&ctx, &path, "readlink", |full| {
            Ok(fs::read_link(full)?.to_string_lossy().into_owned())
        })
    });
    native!(ctx, host, files, "fsSymlink", |at,
                                            ctx,
                                            target: String,
                                            path: String|
     -> () {
        at.on(&ctx, &path, "symlink", |full| std::os::unix::fs::symlink(&target, full))
    });
    native!(ctx, host, files, "fsLink", |at,
                                         ctx,
                                         from: String,
                                         path: String|
     -> () {
        let source = at.path(&ctx, &from)?;
        at.on(&ctx, &path, "link", |full| fs::hard_link(&source, full))
    });
    Ok(())
}

fn attributes<'js>(ctx: &Ctx<'js>, host: &Object<'js>, files: &Files) -> Result<()> {
    native!(ctx, host, files, "fsStat", |at,
                                         ctx,
                                         path: String,
                                         follow: bool|
     -> Object<'js> {
        let call = if follow { "stat" } else { "lstat" };
        let meta = at.on(&ctx, &path, call, |full| {
            if follow {
                fs::metadata(full)
            } else {
                fs::symlink_metadata(full)
            }
        })?;
        let out = Object::new(ctx)?;
        out.set("kind", kind(meta.file_type()))?;
        #[expect(clippy::cast_precision_loss, reason = "numbers as Node gives them")]
        let numbers = [
            ("size", meta.size() as f64),
            ("mode", f64::from(meta.mode())),
            ("uid", f64::from(meta.uid())),
            ("gid", f64::from(meta.gid())),
            ("nlink", meta.nlink() as f64),
            ("ino", meta.ino() as f64),
            ("dev", meta.dev() as f64),
            ("rdev", meta.rdev() as f64),
            ("blksize", meta.blksize() as f64),
            ("blocks", meta.blocks() as f64),
            ("atimeMs", meta.atime() as f64 * 1e3 + meta.atime_nsec() as f64 / 1e6),
            ("mtimeMs", meta.mtime() as f64 * 1e3 + meta.mtime_nsec() as f64 / 1e6),
            ("ctimeMs", meta.ctime() as f64 * 1e3 + meta.ctime_nsec() as f64 / 1e6),
        ];
        for (name, number) in numbers {
            out.set(name, number)?;
        }
        let born = meta
            .created()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        out.set("birthtimeMs", born.map_or(0.0, |time| time.as_secs_f64() * 1e3))?;
        Ok(out)
    });
    native!(ctx, host, files, "fsAccess", |at, ctx, path: String, mode: u32| -> () {
        at.on(&ctx, &path, "access", |full| {
            let flags = nix::unistd::AccessFlags::from_bits_truncate(i32::try_from(mode).unwrap_or(0));
            nix::unistd::access(full, flags).map_err(io::Error::from)
        })
    });
    native!(ctx, host, files, "fsChmod", |at, ctx, path: String, mode: u32| -> () {
        at.on(&ctx, &path, "chmod", |full| {
            fs::set_permissions(full, fs::Permissions::from_mode(mode))
        })
    });
    native!(ctx, host, files, "fsUtimes", |at,
                                           ctx,
                                           path: String,
                                           atime: f64,
                                           mtime: f64|
     -> () {
        at.on(&ctx, &path, "utime", |full| {
            let stamp = |seconds: f64| UNIX_EPOCH + Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
            let times = fs::FileTimes::new()
                .set_accessed(stamp(atime))
                .set_modified(stamp(mtime));
            fs::File::open(full)?.set_times(times)
        })
    });
    Ok(())
}

/// `f`ile, `d`irectory, `l`ink, or what else it is.
fn kind(file_type: fs::FileType) -> &'static str {
    if file_type.is_file() {
        "f"
    } else if file_type.is_dir() {
        "d"
    } else if file_type.is_symlink() {
        "l"
    } else if file_type.is_fifo() {
        "p"
    } else if file_type.is_socket() {
        "s"
    } else if file_type.is_char_device() {
        "c"
    } else {
        "b"
    }
}
