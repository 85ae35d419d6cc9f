//! Push on commit: subscriptions, and who gets a fresh snapshot when.
//!
//! A commit names what changed; only the watchers of that get a snapshot. The first change goes out at once, then at most one
//! snapshot per subscription in 16 ms. A view is read and encoded once per revision however many watch it. This module must
//! not know what views contain ([`crate::projection`]) and must not do I/O on sockets (the connection's writer drains the
//! [`ConnectionSink`]).
//!
//! How a connection uses it:
//!
//! ```text
//! let sink = ConnectionSink::new();                                   // one per connection; the writer loops on sink.next()
//! let watching = publisher.watch_run(&sink, sub_id, run_id).await?;   // notFound installs nothing
//! queue the `accepted` response, then watching.start();               // the first snapshot follows the response
//! publisher.unwatch(&sink, sub_id)                                    // whether it existed
//! publisher.disconnect(&sink)                                         // at the end of the connection
//! ```

mod frame;
mod sink;

pub use frame::{EncodedView, EventFrame};
pub use sink::{ConnectionSink, MAX_SUBSCRIPTIONS, TooManySubscriptions};
