//! Facts of the process and the machine: environment, directory, identity, host. All of them are effects.

use std::rc::Rc;

use rquickjs::{Ctx, Function, Object, Result};

use crate::script::shared::Shared;

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "env",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| -> Result<Object<'js>> {
            at.effect(&ctx, "process.env")?;
            let env = Object::new(ctx)?;
            for (name, value) in &at.options.env {
                env.set(name, value)?;
            }
            Ok(env)
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "facts",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| -> Result<Object<'js>> {
            at.effect(&ctx, "the process")?;
            let facts = Object::new(ctx)?;
            facts.set("cwd", at.options.project.to_string_lossy().into_owned())?;
            facts.set("pid", std::process::id())?;
            facts.set("ppid", std::os::unix::process::parent_id())?;
            facts.set("uid", nix::unistd::getuid().as_raw())?;
            facts.set("gid", nix::unistd::getgid().as_raw())?;
            facts.set("tmpdir", std::env::temp_dir().to_string_lossy().into_owned())?;
            facts.set(
                "cpus",
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            )?;
            let name = nix::sys::utsname::uname().ok();
            let text = |part: Option<&std::ffi::OsStr>| {
                part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
            };
            facts.set(
                "hostname",
                text(name.as_ref().map(nix::sys::utsname::UtsName::nodename)),
            )?;
            facts.set("sysname", text(name.as_ref().map(nix::sys::utsname::UtsName::sysname)))?;
            facts.set("release", text(name.as_ref().map(nix::sys::utsname::UtsName::release)))?;
            let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
            facts.set(
                "username",
                user.as_ref().map(|user| user.name.clone()).unwrap_or_default(),
            )?;
            facts.set(
                "homedir",
                user.map(|user| user.dir.to_string_lossy().into_owned())
                    .unwrap_or_default(),
            )?;
            Ok(facts)
        })?,
    )
}
