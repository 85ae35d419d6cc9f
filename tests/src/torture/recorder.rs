//! A recorder of a Pi session: makes events, sends them in batches until they are answered, some of them again, and knows what
//! must be there in the end.

use fastrand::Rng;
use piw_protocol::client::Call;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_protocol::session::{
    RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent, SessionRecord, SessionRecordReceipt,
};
use serde_json::json;

use super::world::{Stuck, World};

/// The Pi session to which the first run is bound.
pub const SESSION: &str = "torture-session";
/// When everything was said.
const AT: &str = "2026-01-01T00:00:00.000Z";

/// What was recorded of a run.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The run.
    pub run: String,
    /// Every event, in order.
    pub events: Vec<RecordedEvent>,
    /// Every entry, in the order in which they settled.
    pub entries: Vec<RecordedEntry>,
    /// For each entry the number of the event that settles it.
    settled: Vec<usize>,
}

impl Recorder {
    /// Of a run that is bound to [`SESSION`].
    #[must_use]
    pub fn of(run: String) -> Self {
        Self { run, ..Self::default() }
    }

    /// Records a few more events, and some of the last ones again as after a lost connection.
    ///
    /// # Errors
    /// When a batch is not answered, or not as it must be.
    pub async fn record(&mut self, world: &mut World, rng: &mut Rng) -> Result<(), Stuck> {
        let known = self.events.len();
        let from = known - rng.usize(0..=known.min(5));
        for _ in 0..rng.usize(1..6) {
            self.say(rng);
        }
        let adopted = self.send(world, from, None).await?;
        if adopted < known - from {
            let text = format!("of {} recorded events {adopted} were known", known - from);
            return Err(Stuck(text));
        }
        Ok(())
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// When that is not answered as it must be.
    pub async fn end(&mut self, world: &mut World) -> Result<(), Stuck> {
        let end = SegmentEnd {
            failed: false,
            reason: None,
        };
        self.send(world, self.events.len(), Some(end)).await.map(drop)
    }

    fn say(&mut self, rng: &mut Rng) {
        let number = self.events.len();
        let what = match rng.u8(0..5) {
            0 => SessionEvent::TurnStart { turn: number as u64 },
            1 => SessionEvent::ToolStart {
                call_id: format!("call-{number}"),
                tool: "bash".to_owned(),
                args: json!({ "command": "x".repeat(rng.choice([3, 20_000]).unwrap_or(3)) }),
            },
            2 => {
                let entry_id = format!("entry-{number}");
                self.settled.push(number);
                self.entries.push(RecordedEntry {
                    entry_id: entry_id.clone(),
                    at: AT.to_owned(),
                    kind: "message".to_owned(),
                    content: json!("y".repeat(rng.choice([3, 20_000]).unwrap_or(3))),
                    uploaded: None,
                });
                SessionEvent::Entry { entry_id }
            }
            _ => SessionEvent::Text {
                delta: format!("word {number}"),
            },
        };
        let at = AT.to_owned();
        self.events.push(RecordedEvent { at, what });
    }

    /// Sends everything from an event on until it is answered. How many of the events were there before, which is more than were
    /// known to be when an earlier answer was lost.
    async fn send(&self, world: &mut World, from: usize, end: Option<SegmentEnd>) -> Result<usize, Stuck> {
        let first = self.settled.partition_point(|settled| *settled < from);
        let record = SessionRecord {
            session_id: SESSION.to_owned(),
            segment_id: "torture-segment".to_owned(),
            run_id: self.run.clone(),
            sequence: from as u64,
            events: self.events[from..].to_vec(),
            entries: self.entries[first..].to_vec(),
            end,
        };
        let call = Call::new(Operation::SessionRecord, &record).map_err(|error| Stuck(error.to_string()))?;
        let response = world.deliver(&call).await?;
        let receipt: Option<SessionRecordReceipt> = response.receipt.and_then(|receipt| receipt.decode().ok());
        match receipt {
            Some(receipt) if receipt.next_sequence == self.events.len() as u64 => {
                let all = receipt.adopted == record.events.len() as u64;
                if response.outcome == Outcome::Adopted && !all {
                    return Err(Stuck(format!("a batch is adopted of which {receipt:?} was known")));
                }
                Ok(usize::try_from(receipt.adopted).unwrap_or_default())
            }
            receipt => Err(Stuck(format!(
                "session.record from {from} is answered {receipt:?} {:?}",
                response.error
            ))),
        }
    }
}
