//! Which addresses the relay may listen on: loopback only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use piw_protocol::websocket::DEFAULT_PORT;

/// An address that the relay does not listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// It is no address.
    #[error("{0:?} is not an address: give an IP address and a port, for example 127.0.0.1:{DEFAULT_PORT}")]
    Malformed(String),
    /// Other machines could reach it.
    #[error(
        "{0} is not a loopback address: the relay listens on loopback only, because its connections are not encrypted"
    )]
    NotLoopback(IpAddr),
}

/// Reads `--bind`: an IP address or `localhost`, with or without a port. Port 0 takes a free one.
///
/// # Errors
/// When it is no address or not loopback.
pub fn bind_address(given: &str) -> Result<SocketAddr, BindError> {
    let with_port = |rest: &str| rest.parse::<u16>().ok();
    let address = match given.strip_prefix("localhost") {
        Some("") => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))),
        Some(rest) => {
            let port = rest.strip_prefix(':').and_then(with_port);
            port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        }
        None => {
            let bare = given
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .unwrap_or(given);
            let alone = || bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
            given.parse().ok().or_else(alone)
        }
    };
    let address = address.ok_or_else(|| BindError::Malformed(given.to_owned()))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(BindError::NotLoopback(address.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_in_every_spelling() {
        for (given, read) in [
            ("127.0.0.1:9377", "127.0.0.1:9377"),
            ("127.0.0.1", "127.0.0.1:9377"),
            ("127.3.2.1:0", "127.3.2.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("::1", "[::1]:9377"),
            ("[::1]", "[::1]:9377"),
            ("localhost", "127.0.0.1:9377"),
            ("localhost:81", "127.0.0.1:81"),
        ] {
            assert_eq!(bind_address(given).expect(given).to_string(), read);
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for given in [
            "0.0.0.0:9377",
            "192.168.1.2",
            "[::]:9377",
            "[::ffff:127.0.0.1]:80",
            "10.0.0.1:1",
        ] {
            let error = bind_address(given).expect_err(given);
            assert!(matches!(error, BindError::NotLoopback(_)), "{given}: {error}");
            let ip = given.trim_start_matches('[').split(']').next().expect("a part");
            let ip = if given.starts_with('[') {
                ip
            } else {
                ip.split(':').next().expect("a part")
            };
            assert!(error.to_string().contains(ip), "{given}: {error}");
        }
        for given in ["", "example.org:80", "localhost:x", "127.0.0.1:99999", "localhostess"] {
            assert_eq!(bind_address(given), Err(BindError::Malformed(given.to_owned())));
        }
    }
}
