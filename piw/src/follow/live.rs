//! Progress on a terminal: a block of lines repainted in place, below what was printed before.

use std::io::{self, Write};

use crossterm::style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::{QueueableCommand, cursor, terminal};

use super::lines::{Line, Tone};
use crate::text;

/// A block of lines at the bottom of the terminal.
#[derive(Debug)]
pub struct Live<W: Write> {
    out: W,
    colour: bool,
    painted: u16,
}

impl<W: Write> Live<W> {
    /// Paints to `out`, with colour when asked.
    pub fn new(out: W, colour: bool) -> Self {
        Self {
            out,
            colour,
            painted: 0,
        }
    }

    /// Replaces the block. Lines are cut to `width` columns and the oldest are left out above `height` rows.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn paint(&mut self, title: &str, lines: &[Line], width: u16, height: u16) -> io::Result<()> {
        self.rewind()?;
        let room = usize::from(height.saturating_sub(3)).max(1);
        let hidden = lines.len().saturating_sub(room);
        let mut rows = 1;
        self.row(title, Tone::Plain, true, width)?;
        if hidden > 0 {
            self.row(&format!("  … {hidden} more above"), Tone::Plain, false, width)?;
            rows += 1;
        }
        for line in &lines[hidden..] {
            self.line(line, width)?;
            rows += 1;
        }
        self.painted = rows;
        self.out.flush()
    }

    /// Leaves the block as it is; the next output stands below it.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn keep(&mut self) -> io::Result<()> {
        self.painted = 0;
        self.out.flush()
    }

    fn rewind(&mut self) -> io::Result<()> {
        if self.painted > 0 {
            self.out.queue(cursor::MoveToPreviousLine(self.painted))?;
        }
        self.out.queue(terminal::Clear(terminal::ClearType::FromCursorDown))?;
        Ok(())
    }

    fn row(&mut self, content: &str, tone: Tone, bold: bool, width: u16) -> io::Result<()> {
        let content = text::fit(content, usize::from(width.saturating_sub(1)));
        if self.colour {
            if bold {
                self.out.queue(SetAttribute(Attribute::Bold))?;
            }
            if let Some(colour) = colour(tone) {
                self.out.queue(SetForegroundColor(colour))?;
            }
        }
        self.out.write_all(content.as_bytes())?;
        if self.colour {
            self.out.queue(ResetColor)?.queue(SetAttribute(Attribute::Reset))?;
        }
        self.out.write_all(b"\r\n")
    }

    fn line(&mut self, line: &Line, width: u16) -> io::Result<()> {
        let head = format!("{} {} {}", line.glyph, line.kind, line.name);
        let tail = [line.time.as_str(), line.attempts.as_str(), line.detail.as_str()];
        let tail = tail
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join("  ");
        self.row(&format!("{head}  {tail}"), line.tone, false, width)
    }
}

fn colour(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Active => Some(Color::Cyan),
        Tone::Good => Some(Color::Green),
        Tone::Bad => Some(Color::Red),
        Tone::Attention => Some(Color::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> Line {
        Line {
            glyph: '✓',
            tone: Tone::Good,
            kind: 'ƒ',
            name: name.to_owned(),
            time: "0.1s".to_owned(),
            attempts: String::new(),
            detail: "a detail that is rather long".to_owned(),
        }
    }

    #[test]
    fn a_repaint_leaves_one_block_on_the_screen() {
        let mut parser = vt100::Parser::new(10.try_into().unwrap(), 30.try_into().unwrap(), 0);
        for count in [1, 3, 2] {
            let mut bytes = Vec::new();
            let lines: Vec<_> = (0..count).map(|index| line(&format!("n{index}"))).collect();
            let mut live = Live {
                out: &mut bytes,
                colour: true,
                painted: if count == 1 {
                    0
                } else {
                    1 + if count == 3 { 1 } else { 3 }
                },
            };
            live.paint("title", &lines, 30, 10).unwrap();
            parser.process(&bytes);
        }
        let screen = parser.screen().contents();
        let rows: Vec<_> = screen.lines().collect();
        assert_eq!(rows.len(), 3, "{screen}");
        assert!(
            rows[0].starts_with("title") && rows[2].starts_with("✓ ƒ n1"),
            "{screen}"
        );
        assert!(rows.iter().all(|row| row.chars().count() < 30));
    }

    #[test]
    fn more_lines_than_rows_keep_the_newest() {
        let mut bytes = Vec::new();
        let lines: Vec<_> = (0..50).map(|index| line(&format!("n{index}"))).collect();
        Live::new(&mut bytes, false).paint("title", &lines, 40, 10).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.contains("43 more above") && text.contains("n49") && !text.contains("n42 "),
            "{text}"
        );
    }
}
