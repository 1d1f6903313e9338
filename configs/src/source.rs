//! The text of one file, and positions in it.

/// A range of bytes in the text of a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The span from `start` to before `end`; never negative.
    #[must_use]
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether the span covers nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// A place as people and editors name it: both numbers count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

/// The text of one file with its name and its line starts.
///
/// A byte order mark is not part of the text; offsets count from behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
    /// Offset of the first byte of each line; the first is 0.
    lines: Vec<usize>,
}

impl Source {
    /// Takes a name (as it is to be printed) and the text.
    #[must_use]
    pub fn new(name: &str, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let mut lines = vec![0];
        let bytes = text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            // CR alone ends a line too, as YAML 1.2 (5.4) has it; of CR LF the LF counts.
            let ends = match byte {
                b'\n' => true,
                b'\r' => bytes.get(at + 1) != Some(&b'\n'),
                _ => false,
            };
            if ends {
                lines.push(at + 1);
            }
        }
        Self { name: name.to_owned(), text, lines }
    }

    /// The name that diagnostics print.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset. An offset beyond the text is its end.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.floor(offset);
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        Position { line, column: column + 1 }
    }

    /// The text of a line without its end, and the offset of its first byte.
    #[must_use]
    pub fn line(&self, line: usize) -> Option<(usize, &str)> {
        let start = *self.lines.get(line.checked_sub(1)?)?;
        let end = self.lines.get(line).copied().unwrap_or(self.text.len());
        Some((start, self.text.get(start..end)?.trim_end_matches(['\r', '\n'])))
    }

    /// The text of a span; empty if the span is not one of this source.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or("")
    }

    /// The largest character boundary at or below `offset`.
    fn floor(&self, offset: usize) -> usize {
        let mut at = offset.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one_and_lines_at_every_line_end() {
        let source = Source::new("x", "\u{feff}äb: 1\r\nc\rd\n\ne");
        let at = |offset| {
            let Position { line, column } = source.position(offset);
            (line, column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(2), (1, 2), "ä has two bytes and one column");
        assert_eq!(at(8), (2, 1));
        assert_eq!(at(10), (3, 1));
        assert_eq!(at(13), (5, 1));
        assert_eq!(at(999), (5, 2), "beyond the text is its end");
        assert_eq!(source.line(1), Some((0, "äb: 1")));
        assert_eq!(source.line(4), Some((12, "")));
        assert_eq!(source.line(5), Some((13, "e")));
        assert_eq!(source.line(0), None);
        assert_eq!(source.line(6), None);
    }
}
