//! A configuration with one line broken. The tests of the program use this file too.

/// A `key: value` line of a shipped file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'t> {
    /// Offset of the line in the text.
    pub(crate) at: usize,
    /// All of it, with its line end.
    pub(crate) text: &'t str,
    /// White space, and a dash if the key opens an item.
    pub(crate) lead: &'t str,
    /// What stands before the colon.
    pub(crate) key: &'t str,
    /// What stands behind it, trimmed; empty where a block follows.
    pub(crate) value: &'t str,
}

/// The lines of a file that have a key.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut at = 0;
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let body = line.trim_end();
        let content = body.trim_start_matches([' ', '-']);
        let Some((key, value)) = content.split_once(':') else { continue };
        if body.trim_start().starts_with('#') || content.is_empty() {
            continue;
        }
        let lead = &body[..body.len() - content.len()];
        found.push(Line { at: start, text: line, lead, key, value: value.trim() });
    }
    found
}

/// The file with one line replaced.
pub(crate) fn replaced(text: &str, line: &Line<'_>, by: &str) -> String {
    format!("{}{by}{}", &text[..line.at], &text[line.at + line.text.len()..])
}
