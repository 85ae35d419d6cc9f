//! Named points at which a test build can stop, fail or kill the process.

/// Does nothing unless the `failpoints` feature is on and a test configured the point.
#[inline]
pub(crate) fn hit(name: &'static str) {
    #[cfg(feature = "failpoints")]
    fail::eval(name, |_| {});
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}
