//! Sizes: cutting text, measuring items, filling windows to a byte budget.

use serde::Serialize;

/// Longest free-form text of a bounded view, in bytes.
pub(crate) const TEXT_LIMIT: usize = 8 * 1024;

/// Cuts text at a character boundary so that it has at most `limit` bytes, the mark `…` included.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(MARK.len()));
    format!("{}{MARK}", &text[..end])
}

/// Keeps the end of a text, which for process output says how it went.
pub(crate) fn cut_front(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - limit.saturating_sub(MARK.len()));
    format!("{MARK}{}", &text[start..])
}

/// Length of the JSON of an item in bytes: what it costs in a frame. An item that cannot be encoded costs more than any budget.
pub(crate) fn size<T: Serialize + ?Sized>(item: &T) -> usize {
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, item) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A window that is filled item by item until its count or byte budget is spent. The first item is always taken.
#[derive(Debug)]
pub(crate) struct Window<T> {
    items: Vec<T>,
    count: usize,
    bytes: usize,
    used: usize,
}

impl<T: Serialize> Window<T> {
    /// An empty window of at most `count` items and about `bytes` bytes.
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        Self {
            items: Vec::new(),
            count,
            bytes,
            used: 0,
        }
    }

    /// Takes an item if it fits. `false`: the window is full and the item was not taken.
    pub(crate) fn push(&mut self, item: T) -> bool {
        let cost = size(&item).saturating_add(1);
        let fits = self.used.saturating_add(cost) <= self.bytes || self.items.is_empty();
        if self.items.len() >= self.count || !fits {
            return false;
        }
        self.used = self.used.saturating_add(cost);
        self.items.push(item);
        true
    }

    /// The items in the order in which they were taken.
    pub(crate) fn into_items(self) -> Vec<T> {
        self.items
    }

    /// The items in reverse, for windows filled from the newest back.
    pub(crate) fn into_reversed(mut self) -> Vec<T> {
        self.items.reverse();
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!(cut("short", 8), "short");
        assert_eq!(cut("äöüäöü", 8), "äö…");
        assert_eq!(cut_front("äöüäöü", 8), "…öü");
        for limit in 0..20 {
            assert!(cut("日本語のテキスト", limit).len() <= limit.max(3));
            assert!(cut_front("日本語のテキスト", limit).len() <= limit.max(3));
        }
    }

    #[test]
    fn a_window_keeps_to_both_budgets() {
        let mut window = Window::new(3, 20);
        assert!(window.push("a very long first item that does not fit"));
        assert!(!window.push("b"));
        let mut window = Window::new(3, 1_000);
        let taken = (0..10).take_while(|n| window.push(*n)).count();
        assert_eq!((taken, window.into_reversed()), (3, vec![2, 1, 0]));
    }
}
