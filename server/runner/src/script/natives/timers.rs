//! Timers: JavaScript keeps the callbacks, this side keeps when they are due.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::{Ctx, Function, Object, Result};

use crate::script::shared::Shared;

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "setTimer",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, id: u32, delay: f64| -> Result<()> {
            at.effect(&ctx, "setTimeout")?;
            // As in Node: anything that is no delay of at least a millisecond, or too long for it, counts as one millisecond.
            let delay = if (1.0..=2_147_483_647.0).contains(&delay) {
                delay
            } else {
                1.0
            };
            at.timers
                .borrow_mut()
                .set(id, Instant::now() + Duration::from_secs_f64(delay / 1000.0));
            Ok(())
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "clearTimer",
        Function::new(ctx.clone(), move |id: u32| at.timers.borrow_mut().clear(id))?,
    )
}
