//! Options of the client and its retry delays.

use std::time::Duration;

use crate::envelope::PACKAGE_VERSION;

/// How a client behaves. The defaults are the protocol's.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Identity of the sender, with the idempotency key the identity of a command; fresh by default.
    pub client_id: String,
    /// Package version that the server must have.
    pub package_version: String,
    /// Delay after the first failed attempt, doubled after each further one.
    pub first_delay: Duration,
    /// Longest delay between attempts.
    pub longest_delay: Duration,
    /// Failed attempts in a row after which calls fail and views are blocked, before the first hello.
    pub connect_budget: u32,
    /// Failed attempts in a row after which calls fail and views are blocked, once there was a hello.
    pub retry_budget: u32,
    /// Delay between attempts after the budget is spent.
    pub slow_delay: Duration,
    /// Longest wait for a connection and the server's hello.
    pub hello_timeout: Duration,
    /// Longest wait for the answer to one watch request.
    pub watch_timeout: Duration,
    /// Silence after which a server that keeps a view current is asked for a sign of life, and the longest wait for that: a
    /// server that is stopped or hangs is noticed after twice this time.
    pub silence: Duration,
    /// Delay before a subscription that the server dropped is asked for again, doubled each time.
    pub first_rearm: Duration,
    /// Longest such delay.
    pub longest_rearm: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            client_id: uuid::Uuid::new_v4().to_string(),
            package_version: PACKAGE_VERSION.to_owned(),
            first_delay: Duration::from_millis(250),
            longest_delay: Duration::from_secs(10),
            connect_budget: 8,
            retry_budget: 8,
            slow_delay: Duration::from_secs(15),
            hello_timeout: Duration::from_secs(10),
            watch_timeout: Duration::from_secs(20),
            silence: Duration::from_secs(10),
            first_rearm: Duration::from_secs(1),
            longest_rearm: Duration::from_secs(30),
        }
    }
}

impl ClientOptions {
    /// Options of a one-shot command: a server that cannot be reached is reported after the first attempt. A connection that
    /// breaks later is retried as usual, so that a command survives a restart of the server.
    #[must_use]
    pub fn impatient() -> Self {
        Self {
            connect_budget: 1,
            ..Self::default()
        }
    }

    /// Delay before the attempt that follows `failures` failed ones, with up to a quarter of jitter taken off.
    pub(crate) fn delay(&self, failures: u32, budget: u32) -> Duration {
        if failures >= budget {
            return jittered(self.slow_delay);
        }
        jittered(doubled(
            self.first_delay,
            failures.saturating_sub(1),
            self.longest_delay,
        ))
    }

    /// Delay before a subscription is asked for again after `failures` failures in a row.
    pub(crate) fn rearm(&self, failures: u32) -> Duration {
        doubled(self.first_rearm, failures.saturating_sub(1), self.longest_rearm)
    }
}

fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    first
        .saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
        .min(cap)
}

fn jittered(delay: Duration) -> Duration {
    // Without a source of randomness every client waits the whole delay, which is still correct.
    let random = getrandom::u32().unwrap_or(0);
    delay.mul_f64(1.0 - 0.25 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_slow_down_after_the_budget() {
        let options = ClientOptions::default();
        for (failures, whole) in [
            (1, 250),
            (2, 500),
            (3, 1_000),
            (6, 8_000),
            (7, 10_000),
            (9, 10_000),
            (10, 15_000),
        ] {
            let delay = options.delay(failures, 10).as_millis();
            assert!(
                delay <= whole && delay >= whole * 3 / 4,
                "{failures} failures: {delay} ms"
            );
        }
        let rearms: Vec<_> = [1, 2, 5, 6, 60]
            .iter()
            .map(|failures| options.rearm(*failures).as_secs())
            .collect();
        assert_eq!(rearms, [1, 2, 16, 30, 30]);
    }
}
