//! What viewers on other machines connect to. Both relays copy frames between a client and this machine's server; they
//! store nothing, translate nothing and have no rules of the client protocol.
//!
//! | module | owns |
//! | --- | --- |
//! | `bind` | which addresses may be listened on |
//! | `token` | the secret that a client must know |
//! | `gate` | whose handshake is accepted |
//! | `listener` | `piw serve`: connections, limits, the end |
//! | `stdio` | `piw relay --stdio`: one connection over standard streams |

mod bind;
mod gate;
mod listener;
mod stdio;
mod token;

pub use bind::{BindError, bind_address};
pub use listener::{MAX_CONNECTIONS, Relay};
pub use stdio::copy_streams;
pub use token::{Token, TokenError};
