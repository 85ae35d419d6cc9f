//! Breaking pieces into rows of a width.

use unicode_segmentation::UnicodeSegmentation;

use super::{Piece, ROWS};
use crate::text::width;

/// Rows being filled.
pub struct Flow {
    room: usize,
    rows: Vec<Vec<Piece>>,
    row: Vec<Piece>,
    used: usize,
}

impl Flow {
    /// Empty rows of `room` columns.
    pub const fn new(room: usize) -> Self {
        Self {
            room: if room < 2 { 2 } else { room },
            rows: Vec::new(),
            row: Vec::new(),
            used: 0,
        }
    }

    /// Breaks at spaces; a piece that is a line end ends the row. A word may consist of several pieces.
    pub fn take(mut self, pieces: &[Piece]) -> Self {
        let mut word: Vec<Piece> = Vec::new();
        for piece in pieces {
            if self.rows.len() > ROWS {
                break;
            }
            if piece.text == "\n" {
                self.word(std::mem::take(&mut word));
                self.end_row();
                continue;
            }
            for (at, part) in piece.text.split(' ').enumerate() {
                if at > 0 {
                    self.word(std::mem::take(&mut word));
                    self.space(piece);
                }
                if !part.is_empty() {
                    word.push(Piece {
                        text: part.to_owned(),
                        ..*piece
                    });
                }
            }
        }
        self.word(word);
        self
    }

    /// Breaks only where a row is full, as code wants it.
    pub fn exact(mut self, pieces: &[Piece]) -> Self {
        for piece in pieces {
            self.letters(piece);
        }
        self
    }

    /// The rows; an empty text has one empty row.
    pub fn rows(mut self) -> Vec<Vec<Piece>> {
        if !self.row.is_empty() || self.rows.is_empty() {
            self.end_row();
        }
        self.rows
    }

    fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
        self.used = 0;
    }

    fn space(&mut self, like: &Piece) {
        if self.used > 0 && self.used < self.room {
            self.push(" ", like);
        }
    }

    fn word(&mut self, word: Vec<Piece>) {
        let columns: usize = word.iter().map(|piece| width(&piece.text)).sum();
        if self.used > 0 && self.used + columns > self.room {
            self.end_row();
        }
        for piece in word {
            if columns > self.room {
                self.letters(&piece);
            } else {
                self.push(&piece.text, &piece);
            }
        }
    }

    fn letters(&mut self, piece: &Piece) {
        for grapheme in piece.text.graphemes(true) {
            if self.used > 0 && self.used + width(grapheme) > self.room {
                self.end_row();
            }
            self.push(grapheme, piece);
        }
    }

    fn push(&mut self, text: &str, like: &Piece) {
        self.used += width(text);
        match self.row.last_mut() {
            Some(last) if (last.tone, last.modifier) == (like.tone, like.modifier) => last.text.push_str(text),
            _ => self.row.push(Piece {
                text: text.to_owned(),
                ..*like
            }),
        }
    }
}
