//! The closed list of failure classes and of reasons for which a run parks.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A text that is in no closed list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{found}\" is no {what}")]
pub struct UnknownName {
    /// The list.
    pub what: &'static str,
    /// The text.
    pub found: String,
}

macro_rules! closed_list {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every member.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stored text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(UnknownName { what: $what, found: text.to_owned() }),
                }
            }
        }
    };
}

closed_list! {
    /// Why something did not go on. The classes stay distinct: what helps differs.
    FailureClass, "failure class" {
        /// Another owner holds the claim; nothing was written.
        ClaimLost = "claimLost",
        /// The runner died.
        RunnerCrashed = "runnerCrashed",
        /// Runners end without advancing the run.
        RunnerNoProgress = "runnerNoProgress",
        /// The runner did not start or answer in time.
        RunnerTimedOut = "runnerTimedOut",
        /// The server could not be reached.
        ServerUnavailable = "serverUnavailable",
        /// A source differs from the frozen one.
        SourceChanged = "sourceChanged",
        /// An effect may or may not have happened.
        EffectAmbiguous = "effectAmbiguous",
        /// A node ended with an error.
        NodeFailed = "nodeFailed",
        /// A message broke the protocol.
        ProtocolRejected = "protocolRejected",
    }
}

closed_list! {
    /// Why a run is parked: stopped at a durable boundary until someone resumes or resolves it.
    ParkReason, "park reason" {
        /// A source differs from the frozen one.
        WorkflowSourceChanged = "workflowSourceChanged",
        /// Runners end without advancing the run.
        RunnerNoProgress = "runnerNoProgress",
        /// The runner did not start or answer in time.
        RunnerTimedOut = "runnerTimedOut",
        /// An effect may or may not have happened.
        EffectAmbiguous = "effectAmbiguous",
        /// The runner broke the protocol.
        ProtocolRejected = "protocolRejected",
        /// The server is stopping.
        ServerStopping = "serverStopping",
    }
}

impl ParkReason {
    /// The failure behind it, when there is one.
    #[must_use]
    pub fn class(self) -> Option<FailureClass> {
        match self {
            Self::WorkflowSourceChanged => Some(FailureClass::SourceChanged),
            Self::RunnerNoProgress => Some(FailureClass::RunnerNoProgress),
            Self::RunnerTimedOut => Some(FailureClass::RunnerTimedOut),
            Self::EffectAmbiguous => Some(FailureClass::EffectAmbiguous),
            Self::ProtocolRejected => Some(FailureClass::ProtocolRejected),
            Self::ServerStopping => None,
        }
    }

    /// What a person should know.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Self::WorkflowSourceChanged => "a workflow source changed since the run started",
            Self::RunnerNoProgress => "its runner keeps ending without progress; resume tries once more",
            Self::RunnerTimedOut => "its runner did not answer in time; resume tries once more",
            Self::EffectAmbiguous => "an effect may or may not have happened; it must be reviewed first",
            Self::ProtocolRejected => "its runner broke the protocol; resume tries once more",
            Self::ServerStopping => "the server stopped; it goes on when the server is back",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for class in FailureClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(*class));
        }
        for reason in ParkReason::ALL {
            assert_eq!(reason.to_string().parse(), Ok(*reason));
            assert!(!reason.explain().is_empty());
        }
        assert_eq!(
            "x".parse::<ParkReason>().unwrap_err().to_string(),
            "\"x\" is no park reason"
        );
    }
}
