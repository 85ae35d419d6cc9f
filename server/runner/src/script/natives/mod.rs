//! The native functions that provided modules are built on: one `host` object per runtime, reachable only from their code.
//!
//! Every function with an effect asks [`Shared::effect`] first, so a closed gate holds even for code that got hold of one.

mod core;
mod facts;
mod fs;
mod outside;
pub(super) mod process;
mod timers;

use std::rc::Rc;

use rquickjs::{Ctx, Exception, Object, Result};

use super::shared::Shared;

/// Makes the `host` object. The pure runtime's has no function with an effect.
pub(super) fn install<'js>(ctx: &Ctx<'js>, shared: &Rc<Shared>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    core::install(ctx, &host, shared)?;
    if !shared.pure {
        timers::install(ctx, &host, shared)?;
        fs::install(ctx, &host, shared)?;
        facts::install(ctx, &host, shared)?;
        process::install(ctx, &host, shared)?;
        outside::install(ctx, &host, shared)?;
    }
    Ok(host)
}

/// Throws an error of the operating system as Node does: `ENOENT: no such file or directory, open '/x'`.
fn throw_io(ctx: &Ctx<'_>, error: &std::io::Error, call: &str, path: &str) -> rquickjs::Error {
    let (code, text) = describe_io(error);
    let place = if path.is_empty() {
        String::new()
    } else {
        format!(" '{path}'")
    };
    let made = (|| {
        let exception = Exception::from_message(ctx.clone(), &format!("{code}: {text}, {call}{place}"))?;
        let object = exception.as_object();
        object.set("code", code)?;
        object.set("syscall", call)?;
        if let Some(number) = error.raw_os_error() {
            object.set("errno", -number)?;
        }
        if !path.is_empty() {
            object.set("path", path)?;
        }
        Ok(exception)
    })();
    match made {
        Ok(exception) => exception.throw(),
        Err(error) => error,
    }
}

/// Node's code and text for an error of the operating system.
pub(super) fn describe_io(error: &std::io::Error) -> (String, String) {
    let known = error.raw_os_error().and_then(|number| {
        Some(match number {
            libc::ENOENT => ("ENOENT", "no such file or directory"),
            libc::EACCES => ("EACCES", "permission denied"),
            libc::EPERM => ("EPERM", "operation not permitted"),
            libc::EEXIST => ("EEXIST", "file already exists"),
            libc::ENOTDIR => ("ENOTDIR", "not a directory"),
            libc::EISDIR => ("EISDIR", "illegal operation on a directory"),
            libc::ENOTEMPTY => ("ENOTEMPTY", "directory not empty"),
            libc::EINVAL => ("EINVAL", "invalid argument"),
            libc::EMFILE => ("EMFILE", "too many open files"),
            libc::ENOSPC => ("ENOSPC", "no space left on device"),
            libc::EROFS => ("EROFS", "read-only file system"),
            libc::EXDEV => ("EXDEV", "cross-device link not permitted"),
            libc::ELOOP => ("ELOOP", "too many symbolic links encountered"),
            libc::ENAMETOOLONG => ("ENAMETOOLONG", "name too long"),
            libc::EPIPE => ("EPIPE", "broken pipe"),
            libc::EBADF => ("EBADF", "bad file descriptor"),
            libc::EBUSY => ("EBUSY", "resource busy or locked"),
            libc::ESRCH => ("ESRCH", "no such process"),
            libc::E2BIG => ("E2BIG", "argument list too long"),
            libc::ENOEXEC => ("ENOEXEC", "exec format error"),
            libc::EFBIG => ("EFBIG", "file too large"),
            libc::ETXTBSY => ("ETXTBSY", "text file is busy"),
            _ => return None,
        })
    });
    match known {
        Some((code, text)) => (code.to_owned(), text.to_owned()),
        None => ("EIO".to_owned(), error.to_string()),
    }
}
