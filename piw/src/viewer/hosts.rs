//! The watched servers. Usually there is one and nobody speaks of it; with several, each has a name, a connection of its own
//! and its runs in the common list.

use std::borrow::Cow;

use piw_protocol::client::ConnectionState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::clock;
use super::theme::{Mark, Theme};
use crate::text::{clean, counted, fit, fit_end, pad, width};

/// Widest host name in a list.
const NAME: usize = 12;

/// A watched server: its place among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// A run, wherever it is. The same id on two hosts names two runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId {
    /// The host that has it.
    pub host: HostId,
    /// Its id there.
    pub id: String,
}

/// A watched server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it is called, neutralised; empty for this machine's own server.
    pub name: String,
    /// Its connection.
    pub connection: ConnectionState,
    /// Whether there ever was a connection.
    pub reached: bool,
}

/// All watched servers, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// Servers with these names, none of them connected yet.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let host = |name: &str| Host {
            name: clean(name).into_owned(),
            connection: ConnectionState::Connecting,
            reached: false,
        };
        if names.is_empty() {
            return Self(vec![host("")]);
        }
        Self(names.iter().map(|name| host(name)).collect())
    }

    /// Number of servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether there is more than one, so that hosts are named at all.
    #[must_use]
    pub fn several(&self) -> bool {
        self.0.len() > 1
    }

    /// A server. An id that is none names the first.
    #[must_use]
    pub fn get(&self, id: HostId) -> &Host {
        self.0.get(id.0).unwrap_or(&self.0[0])
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.0.iter().enumerate().map(|(at, host)| (HostId(at), host))
    }

    /// Takes a new state of a connection; returns what is worth a notice, and whether that is bad.
    pub fn take(&mut self, id: HostId, state: ConnectionState) -> Option<(String, bool)> {
        let several = self.several();
        let host = self.0.get_mut(id.0)?;
        let prefix = if several {
            format!("{}: ", host.name)
        } else {
            String::new()
        };
        let was_lost = matches!(
            host.connection,
            ConnectionState::Reconnecting(_) | ConnectionState::Blocked(_)
        );
        let was_opening = host.connection == ConnectionState::Connecting;
        let notice = match &state {
            ConnectionState::Connected { .. } if was_lost => Some((format!("{prefix}connected again"), false)),
            // One host alone says it in the timeline.
            ConnectionState::Reconnecting(retry) if several && was_opening => {
                Some((format!("{prefix}{}", retry.reason), true))
            }
            ConnectionState::Stopped(error) if several => Some((format!("{prefix}{error}"), true)),
            _ => None,
        };
        host.reached |= matches!(state, ConnectionState::Connected { .. });
        host.connection = state;
        notice
    }

    /// Columns that a list needs for names.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.0.iter().map(|host| width(&host.name)).max().unwrap_or(0).min(NAME)
    }

    /// How many are connected, in words.
    #[must_use]
    pub fn summary(&self) -> String {
        let connected = self.0.iter().filter(|host| host.is_connected()).count();
        format!("{connected} of {} connected", counted(self.0.len() as u64, "host"))
    }

    /// Draws one line a host. `runs` says how many runs each has.
    pub fn draw(&self, runs: &[Option<u64>], theme: &Theme, rail: bool, area: Rect, buffer: &mut Buffer) {
        let columns = self.columns();
        for (y, (id, host)) in (area.y..area.bottom()).zip(self.iter()) {
            let (glyph, style) = host.mark(theme);
            let mut spans = vec![Span::styled(format!(" {glyph} "), style)];
            if !rail {
                let (words, style) = host.words(runs.get(id.0).copied().flatten(), theme);
                spans.push(Span::styled(
                    pad(&short(&host.name, columns), columns),
                    Style::new().fg(theme.palette.text),
                ));
                let room = usize::from(area.width).saturating_sub(columns + 5);
                spans.push(Span::styled(format!(" {}", fit(&words, room)), style));
            }
            buffer.set_line(area.x, y, &Line::from(spans), area.width);
        }
    }
}

/// A name in few columns. The port tells the relays of one address apart, so the end of an address stays.
#[must_use]
pub fn short(name: &str, columns: usize) -> Cow<'_, str> {
    let port = name.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
        fit_end(name, columns)
    } else {
        fit(name, columns)
    }
}

impl Host {
    /// Whether it is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.connection, ConnectionState::Connected { .. })
    }

    /// Why it is not connected, whole.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let reason = match &self.connection {
            ConnectionState::Reconnecting(retry) | ConnectionState::Blocked(retry) => retry.reason.clone(),
            ConnectionState::Stopped(error) => error.to_string(),
            ConnectionState::Connecting | ConnectionState::Connected { .. } => return None,
        };
        Some(if self.name.is_empty() {
            reason
        } else {
            format!("{}: {reason}", self.name)
        })
    }

    fn mark(&self, theme: &Theme) -> (&'static str, Style) {
        let glyph = |fancy, plain| if theme.ascii { plain } else { fancy };
        match &self.connection {
            ConnectionState::Connecting => (glyph("◌", "o"), theme.warning()),
            ConnectionState::Connected { .. } => (glyph("●", "*"), theme.status(Mark::Ok)),
            ConnectionState::Reconnecting(_) => (glyph("↻", "~"), theme.warning()),
            ConnectionState::Blocked(_) | ConnectionState::Stopped(_) => (glyph("✗", "x"), theme.error()),
        }
    }

    fn words(&self, runs: Option<u64>, theme: &Theme) -> (String, Style) {
        match &self.connection {
            ConnectionState::Connecting => ("connecting…".into(), theme.warning()),
            ConnectionState::Connected { .. } => match runs {
                Some(runs) => (format!("live · {}", counted(runs, "run")), theme.muted()),
                None => ("live".into(), theme.muted()),
            },
            ConnectionState::Reconnecting(retry) => {
                let delay = clock::duration(retry.delay.as_millis() as i64);
                let stale = if self.reached { "stale · " } else { "" };
                (format!("{stale}attempt {} in {delay}", retry.attempt), theme.warning())
            }
            ConnectionState::Blocked(retry) => (format!("disconnected: {}", clean(&retry.reason)), theme.error()),
            ConnectionState::Stopped(error) => (clean(&error.to_string()).into_owned(), theme.error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_of_one_address_differ_by_their_port() {
        assert_eq!(short("127.0.0.1:9377", 12), "….0.0.1:9377");
        assert_eq!(short("gpu-machine-one", 12), "gpu-machine…");
        assert_eq!(short("127.0.0.1:9377", 14), "127.0.0.1:9377");
    }
}
