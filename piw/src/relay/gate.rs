//! Whose WebSocket handshake is accepted. Loopback is no boundary: any web page in a browser and any user of this machine
//! can connect to it. So the token must be right, the `Host` must be loopback (a page of another name that resolves here is
//! not), and a request with a browser's `Origin` is refused whatever it says.

use piw_protocol::websocket::tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use piw_protocol::websocket::tokio_tungstenite::tungstenite::http::{Response, StatusCode, header};
use piw_protocol::websocket::{PATH, is_loopback};

use super::token::Token;

/// Why a handshake is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// Another path.
    #[error("there is nothing at {0:?}; the protocol is at {PATH}")]
    Path(String),
    /// Another host, or none.
    #[error("the host {0:?} is not a loopback address")]
    Host(String),
    /// A browser.
    #[error("requests of browser pages are refused (origin {0:?})")]
    Origin(String),
    /// No token, or a wrong one.
    #[error("the token is missing or wrong: use the URL that piw serve prints")]
    Token,
}

impl Refused {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Host(_) | Self::Origin(_) => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }

    /// The answer that the client gets.
    pub(super) fn response(&self) -> ErrorResponse {
        let mut response = Response::new(Some(format!("{self}\n")));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        response
    }
}

/// Checks a handshake.
pub(super) fn admit(request: &Request, token: &Token) -> Result<(), Refused> {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut hosts = request.headers().get_all(header::HOST).iter().map(text);
    let host = hosts.next().unwrap_or_default();
    if !is_loopback(without_port(&host)) || hosts.next().is_some() {
        return Err(Refused::Host(host));
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        return Err(Refused::Origin(text(origin)));
    }
    if request.uri().path() != PATH {
        return Err(Refused::Path(request.uri().path().to_owned()));
    }
    let query = request.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    if given.is_some_and(|given| token.is(given)) {
        Ok(())
    } else {
        Err(Refused::Token)
    }
}

/// The host of a `Host` header; a port that is none stays part of it, so that it matches nothing.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), Refused> {
        let dir = tempfile::tempdir().expect("a directory");
        let token = Token::keep(dir.path(), false).expect("a token");
        let mut request = Request::builder().uri(uri.replace("TOKEN", token.as_str()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        admit(&request.body(()).expect("a request"), &token)
    }

    #[test]
    fn a_client_with_the_token_is_admitted_under_every_loopback_name() {
        for host in [
            "127.0.0.1:9377",
            "localhost",
            "LOCALHOST:1",
            "[::1]:9377",
            "[::1]",
            "127.9.9.9:80",
        ] {
            assert_eq!(check("/ws?token=TOKEN", &[("Host", host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn everyone_else_is_refused() {
        let good = ("Host", "127.0.0.1:9377");
        for host in [
            "evil.example",
            "evil.example:9377",
            "127.0.0.1.evil.example",
            "192.168.0.1",
            "",
            "127.0.0.1:x",
            "::1:9",
        ] {
            let refused = check("/ws?token=TOKEN", &[("Host", host)]);
            assert_eq!(refused, Err(Refused::Host(host.to_owned())));
        }
        assert!(matches!(check("/ws?token=TOKEN", &[]), Err(Refused::Host(_))));
        assert!(matches!(
            check("/ws?token=TOKEN", &[good, ("Host", "evil.example")]),
            Err(Refused::Host(_))
        ));
        for origin in ["https://evil.example", "null", "http://127.0.0.1:9377"] {
            let refused = check("/ws?token=TOKEN", &[good, ("Origin", origin)]);
            assert_eq!(refused, Err(Refused::Origin(origin.to_owned())));
        }
        assert_eq!(check("/?token=TOKEN", &[good]), Err(Refused::Path("/".to_owned())));
        for uri in [
            "/ws",
            "/ws?token=",
            "/ws?token=abc",
            "/ws?other=TOKEN",
            "/ws?token=TOKENx",
        ] {
            assert_eq!(check(uri, &[good]), Err(Refused::Token), "{uri}");
        }
    }
}
