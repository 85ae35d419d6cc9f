//! The hosts that a viewer watches besides or instead of this machine's server.
//!
//! | module | owns |
//! | --- | --- |
//! | `ssh` | the system's `ssh`: its options, what its failures mean |
//! | `process` | a child process as a connection, and its end |

mod process;
mod ssh;

use piw_protocol::client::{Client, ClientOptions, RelayUrl, UrlError, WebSocketConnector};

pub use process::Reaper;
pub use ssh::{Destination, SshConnector};

/// The environment variable with the token of relays whose URL has none.
pub const TOKEN_VAR: &str = "PIW_RELAY_TOKEN";

/// A host that cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A relay's URL.
    #[error("--connect: {0}")]
    Url(#[from] UrlError),
    /// An ssh destination.
    #[error("--ssh: {0:?} is not a host: it is empty, begins with - or holds spaces")]
    Destination(String),
    /// The same host twice.
    #[error("{0} is named twice")]
    Twice(String),
}

/// How a host is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Over a relay.
    Relay(RelayUrl),
    /// Over `ssh`.
    Ssh(Destination),
}

/// A host to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What the viewer calls it.
    pub name: String,
    /// How it is reached.
    pub way: Way,
}

impl Host {
    /// The hosts of a command line: those of `--ssh` in their order, then those of `--connect`.
    ///
    /// # Errors
    /// When one cannot be a host or is named twice.
    pub fn read(ssh: &[String], connect: &[String], token: Option<&str>) -> Result<Vec<Self>, HostError> {
        let mut hosts = Vec::new();
        for given in ssh {
            let destination = Destination::new(given).ok_or_else(|| HostError::Destination(given.clone()))?;
            hosts.push(Self {
                name: destination.short().to_owned(),
                way: Way::Ssh(destination),
            });
        }
        for given in connect {
            let url = RelayUrl::parse(given, token)?;
            hosts.push(Self {
                name: url.address(),
                way: Way::Relay(url),
            });
        }
        for at in 0..hosts.len() {
            if hosts[..at].iter().any(|host| host.way == hosts[at].way) {
                return Err(HostError::Twice(hosts[at].name.clone()));
            }
        }
        tell_apart(&mut hosts);
        Ok(hosts)
    }

    /// Starts a client that keeps a connection to the host.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(&self, remote_piw: &str, reaper: &Reaper, options: ClientOptions) -> Client {
        match &self.way {
            Way::Relay(url) => Client::start(WebSocketConnector::new(url.clone()), options),
            Way::Ssh(destination) => {
                let connector = SshConnector::new(destination.clone(), remote_piw, reaper.clone());
                // ssh has limits of its own for the network; these are for it and the other machine together.
                let options = ClientOptions {
                    hello_timeout: ssh::CONNECTING,
                    ..options
                };
                Client::start(connector, options)
            }
        }
    }
}

/// Gives hosts with the same short name their whole destination as name.
fn tell_apart(hosts: &mut [Host]) {
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    for host in hosts.iter_mut() {
        if names.iter().filter(|name| **name == host.name).count() > 1
            && let Way::Ssh(destination) = &host.way
        {
            host.name = destination.as_str().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ssh: &[&str], connect: &[&str]) -> Result<Vec<String>, HostError> {
        let owned = |given: &[&str]| given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let hosts = Host::read(&owned(ssh), &owned(connect), Some("ab"))?;
        Ok(hosts.into_iter().map(|host| host.name).collect())
    }

    #[test]
    fn hosts_are_called_by_their_short_names_unless_those_collide() {
        assert_eq!(
            names(&["ada@build", "gpu"], &["ws://127.0.0.1:9"]).expect("hosts"),
            ["build", "gpu", "127.0.0.1:9"]
        );
        assert_eq!(
            names(&["ada@build", "bob@build"], &[]).expect("hosts"),
            ["ada@build", "bob@build"]
        );
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        for given in ["", "-oProxyCommand=evil", "two words", "a\nb"] {
            assert_eq!(names(&[given], &[]), Err(HostError::Destination(given.to_owned())));
        }
        assert_eq!(names(&["a", "b", "a"], &[]), Err(HostError::Twice("a".to_owned())));
        assert!(matches!(names(&[], &["ws://example.org"]), Err(HostError::Url(_))));
    }
}
