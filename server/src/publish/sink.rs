//! The latest-wins slots between the publisher and one connection's writer.
//!
//! Every subscription of a connection owns one slot that holds at most one waiting event; a newer snapshot replaces it. So
//! a client that does not read costs one frame a subscription and delays nobody. The sink never blocks the publisher, and
//! it must not do I/O: the connection's writer drains it with [`ConnectionSink::next`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::frame::EventFrame;

/// Most subscriptions of one connection.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// The event slots of one connection. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSink {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: Mutex<Slots>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: HashMap<Arc<str>, Slot>,
    ready: VecDeque<Arc<str>>,
    last_generation: u64,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    waiting: Option<EventFrame>,
    /// The subscription ends once the waiting event was taken.
    last: bool,
}

/// The publisher's end of one slot. It goes stale when the subscription is replaced, removed or the connection closes.
#[derive(Debug, Clone)]
pub(crate) struct SlotHandle {
    sink: ConnectionSink,
    subscription_id: Arc<str>,
    generation: u64,
}

/// A connection has as many subscriptions as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this connection already has {MAX_SUBSCRIPTIONS} subscriptions, which is the limit; unwatch one first")]
pub struct TooManySubscriptions;

impl ConnectionSink {
    /// A sink without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next event to write, in the order in which slots became full; `None` once the sink is closed. Cancel-safe.
    pub async fn next(&self) -> Option<EventFrame> {
        loop {
            let woken = self.inner.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            {
                let mut slots = self.lock();
                if slots.closed {
                    return None;
                }
                if let Some(frame) = slots.take() {
                    return Some(frame);
                }
            }
            woken.await;
        }
    }

    /// The next event if one is waiting now.
    #[must_use]
    pub fn try_next(&self) -> Option<EventFrame> {
        self.lock().take()
    }

    /// Drops every slot; the publisher notices with its next event. Idempotent.
    pub fn close(&self) {
        let mut slots = self.lock();
        slots.closed = true;
        slots.by_id.clear();
        slots.ready.clear();
        drop(slots);
        self.inner.wake.notify_waiters();
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether one more subscription, or another under this id, can be made.
    pub(crate) fn check_room(&self, subscription_id: &str) -> Result<(), TooManySubscriptions> {
        self.lock().check_room(subscription_id)
    }

    /// Opens a slot; an older subscription of the same id is replaced and its waiting event dropped.
    pub(crate) fn open(&self, subscription_id: &str) -> Result<SlotHandle, TooManySubscriptions> {
        let mut slots = self.lock();
        slots.check_room(subscription_id)?;
        slots.last_generation += 1;
        let generation = slots.last_generation;
        let id: Arc<str> = subscription_id.into();
        if !slots.closed {
            slots.by_id.insert(
                Arc::clone(&id),
                Slot {
                    generation,
                    waiting: None,
                    last: false,
                },
            );
        }
        Ok(SlotHandle {
            sink: self.clone(),
            subscription_id: id,
            generation,
        })
    }

    /// Removes a subscription with its waiting event; whether there was one.
    pub(crate) fn remove(&self, subscription_id: &str) -> bool {
        let mut slots = self.lock();
        slots.by_id.remove(subscription_id).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.inner
            .slots
            .lock()
            .expect("no code panics while it holds the slots")
    }
}

impl Slots {
    fn check_room(&self, subscription_id: &str) -> Result<(), TooManySubscriptions> {
        if !self.by_id.contains_key(subscription_id) && self.by_id.len() >= MAX_SUBSCRIPTIONS {
            return Err(TooManySubscriptions);
        }
        Ok(())
    }

    fn take(&mut self) -> Option<EventFrame> {
        while let Some(id) = self.ready.pop_front() {
            // A removed or replaced subscription leaves its name in the queue.
            let Some(slot) = self.by_id.get_mut(&id) else { continue };
            let Some(frame) = slot.waiting.take() else { continue };
            if slot.last {
                self.by_id.remove(&id);
            }
            return Some(frame);
        }
        None
    }
}

impl SlotHandle {
    /// The subscription's id.
    pub(crate) fn subscription_id(&self) -> &str {
        &self.subscription_id
    }

    /// Whether this is the slot of that subscription of that connection.
    pub(crate) fn is_of(&self, sink: &ConnectionSink, subscription_id: &str) -> bool {
        Arc::ptr_eq(&self.sink.inner, &sink.inner) && &*self.subscription_id == subscription_id && self.is_open()
    }

    /// Whether the subscription still exists.
    pub(crate) fn is_open(&self) -> bool {
        let slots = self.sink.lock();
        slots
            .by_id
            .get(&self.subscription_id)
            .is_some_and(|slot| slot.generation == self.generation && !slot.last)
    }

    /// Puts an event in the slot, in place of one that still waits. `false` when the subscription is gone.
    pub(crate) fn offer(&self, frame: EventFrame) -> bool {
        self.put(frame, false)
    }

    /// Puts the subscription's last event in the slot; the subscription ends when it is taken.
    pub(crate) fn finish(&self, frame: EventFrame) -> bool {
        self.put(frame, true)
    }

    fn put(&self, frame: EventFrame, last: bool) -> bool {
        let mut slots = self.sink.lock();
        let Some(slot) = slots.by_id.get_mut(&self.subscription_id) else {
            return false;
        };
        if slot.generation != self.generation || slot.last {
            return false;
        }
        slot.last = last;
        if slot.waiting.replace(frame).is_none() {
            slots.ready.push_back(Arc::clone(&self.subscription_id));
        }
        drop(slots);
        self.sink.inner.wake.notify_waiters();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use piw_protocol::ops::OperationError;

    fn event(text: &str) -> EventFrame {
        let error = OperationError {
            reason: "r".into(),
            message: text.into(),
            cause: None,
        };
        EventFrame::unavailable("s", None, &error)
    }

    fn text(frame: Option<EventFrame>) -> String {
        String::from_utf8(frame.expect("an event waits").to_vec()).unwrap()
    }

    #[test]
    fn a_newer_event_replaces_the_waiting_one() {
        let sink = ConnectionSink::new();
        let slot = sink.open("a").unwrap();
        for n in 0..1_000 {
            assert!(slot.offer(event(&format!("number {n}"))));
        }
        assert!(text(sink.try_next()).contains("number 999"));
        assert!(sink.try_next().is_none());
    }

    #[test]
    fn a_replaced_subscription_cannot_write() {
        let sink = ConnectionSink::new();
        let old = sink.open("a").unwrap();
        old.offer(event("old"));
        let new = sink.open("a").unwrap();
        assert!(!old.offer(event("older")));
        assert!(!old.is_open());
        assert!(sink.try_next().is_none());
        assert!(new.offer(event("new")));
        assert!(text(sink.try_next()).contains("new"));
        assert!(sink.remove("a"));
        assert!(!sink.remove("a"));
        assert!(!new.offer(event("gone")));
    }

    #[test]
    fn subscriptions_take_turns_and_are_limited() {
        let sink = ConnectionSink::new();
        let slots: Vec<_> = (0..MAX_SUBSCRIPTIONS)
            .map(|n| sink.open(&n.to_string()).unwrap())
            .collect();
        assert_eq!(sink.open("more").unwrap_err(), TooManySubscriptions);
        assert!(sink.open("7").is_ok(), "replacing is allowed at the limit");
        slots[3].offer(event("three"));
        slots[1].offer(event("one"));
        slots[3].offer(event("three again"));
        assert!(text(sink.try_next()).contains("three again"));
        assert!(text(sink.try_next()).contains("one"));
    }

    #[test]
    fn a_final_event_ends_its_subscription() {
        let sink = ConnectionSink::new();
        let slot = sink.open("a").unwrap();
        assert!(slot.finish(event("failed")));
        assert!(!slot.offer(event("late")));
        assert!(text(sink.try_next()).contains("failed"));
        assert_eq!(sink.subscriptions(), 0);
    }

    #[tokio::test]
    async fn a_waiting_writer_wakes_for_events_and_for_the_end() {
        let sink = ConnectionSink::new();
        let slot = sink.open("a").unwrap();
        let reader = tokio::spawn({
            let sink = sink.clone();
            async move { (sink.next().await.is_some(), sink.next().await.is_none()) }
        });
        tokio::task::yield_now().await;
        slot.offer(event("x"));
        while sink.lock().by_id["a"].waiting.is_some() {
            tokio::task::yield_now().await;
        }
        sink.close();
        assert_eq!(reader.await.unwrap(), (true, true));
        assert!(!slot.offer(event("after")));
    }
}
