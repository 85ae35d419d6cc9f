//! A scan for source text nested so deeply that recursive code working on its syntax tree would exhaust the native stack.
//!
//! The TypeScript parser and its tree walkers recurse on the native stack without a guard, so depth is bounded before they
//! see the text. The scan estimates depth from brackets and from operators between separators; it never rejects code that
//! people write, and it need not be exact: the script thread's stack holds several times the limit.

/// Depth that is accepted. Code written by people stays below 100; generated code below 1,000.
pub(super) const MAX_DEPTH: usize = 5_000;

/// Where the text becomes too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooDeep {
    /// Byte offset of the token that exceeded the limit.
    pub offset: usize,
}

/// Checks `text`; `Err` names the first place that is nested deeper than [`MAX_DEPTH`].
pub(super) fn check(text: &str) -> Result<(), TooDeep> {
    Scanner {
        bytes: text.as_bytes(),
        at: 0,
        open: Vec::new(),
        chain: 0,
        total: 0,
    }
    .run()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Open brackets: the chain length that was interrupted by each, and whether it is a template hole.
    open: Vec<(usize, bool)>,
    /// Operators since the last separator at this level.
    chain: usize,
    /// Sum of chain lengths of all enclosing levels.
    total: usize,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<(), TooDeep> {
        while let Some(&byte) = self.bytes.get(self.at) {
            let start = self.at;
            self.at += 1;
            match byte {
                b'"' | b'\'' => self.skip_string(byte),
                b'`' => self.skip_template(),
                b'/' => match self.bytes.get(self.at) {
                    Some(b'/') => self.skip_line(),
                    Some(b'*') => self.skip_comment(),
                    _ => self.chain += 1,
                },
                b'(' | b'[' | b'{' => self.push(false),
                b')' | b']' | b'}' => self.pop(byte),
                b';' | b',' => self.chain = 0,
                b'+' | b'-' | b'*' | b'%' | b'!' | b'~' | b'?' | b'&' | b'|' | b'^' | b'<' | b'=' | b'.' => {
                    self.chain += 1;
                }
                b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' => self.word(start),
                _ => {}
            }
            if self.open.len() + self.total + self.chain > MAX_DEPTH {
                return Err(TooDeep { offset: start });
            }
        }
        Ok(())
    }

    fn push(&mut self, hole: bool) {
        self.open.push((self.chain, hole));
        self.total += self.chain;
        self.chain = 0;
    }

    fn pop(&mut self, byte: u8) {
        let Some((chain, hole)) = self.open.pop() else { return };
        self.total -= chain;
        // A call, an index or a parenthesised operand continues the chain it stands in; a block ends a statement, unless
        // `else` follows.
        self.chain = if byte == b'}' && !hole && !self.else_follows() {
            0
        } else {
            chain + 1
        };
        if hole {
            self.skip_template();
        }
    }

    fn else_follows(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        rest[blank..].starts_with(b"else")
    }

    /// Words that nest their operand on the right.
    fn word(&mut self, start: usize) {
        while self
            .bytes
            .get(self.at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
        {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        if matches!(
            word,
            b"new"
                | b"typeof"
                | b"void"
                | b"delete"
                | b"await"
                | b"yield"
                | b"if"
                | b"else"
                | b"for"
                | b"while"
                | b"do"
                | b"in"
                | b"instanceof"
                | b"extends"
                | b"keyof"
                | b"readonly"
        ) {
            self.chain += 1;
        }
    }

    fn skip_string(&mut self, quote: u8) {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'\n' => return,
                _ if byte == quote => return,
                _ => {}
            }
        }
    }

    fn skip_template(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'`' => return,
                b'$' if self.bytes.get(self.at) == Some(&b'{') => {
                    self.at += 1;
                    self.push(true);
                    return;
                }
                _ => {}
            }
        }
    }

    fn skip_line(&mut self) {
        while self.bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
            self.at += 1;
        }
    }

    fn skip_comment(&mut self) {
        self.at += 1;
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(b"*/") {
            self.at += 1;
        }
        self.at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_text_of_every_kind_is_found() {
        let n = 100_000;
        for deep in [
            "(".repeat(n),
            "[".repeat(n),
            "{".repeat(n),
            format!("x = {}1", "!".repeat(n)),
            format!("x = {}1", "1+".repeat(n)),
            format!("x = a{}", ".b".repeat(n)),
            format!("x = a{}", "()".repeat(n)),
            format!("x = {}1", "a=>".repeat(n)),
            format!("x = {}1", "a?b:".repeat(n)),
            format!("{}{{}}", "if(x){}else ".repeat(n)),
            format!("{};", "if(x)".repeat(n)),
            "`${".repeat(n),
            format!("type X = {}string", "A<".repeat(n)),
            format!("x = {}Y", "new ".repeat(n)),
        ] {
            assert!(check(&deep).is_err(), "{}", &deep[..30]);
        }
    }

    #[test]
    fn flat_text_of_any_length_passes() {
        let n = 100_000;
        for flat in [
            "f(1);\n".repeat(n),
            format!("x = [{}]", "{a: 1 + 2}, ".repeat(n)),
            format!("x = \"{}\"", "(".repeat(n)),
            format!("x = `{}`", "(".repeat(n)),
            format!("/* {} */", "(".repeat(n)),
            format!("// {}", "(".repeat(n)),
            "function f() { return `a${b}c`; }\n".repeat(n),
        ] {
            assert_eq!(check(&flat), Ok(()), "{}", &flat[..20]);
        }
    }
}
