//! YAML text → a tree in which every node knows its place.
//!
//! Built on the events of `saphyr-parser`, not on a loader: a loader keeps one of two equal keys
//! and turns scalars into numbers on the way. Here duplicates stay, and a scalar stays the text
//! that was written, with whether it was quoted.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span as Marks, StrInput};

use crate::diagnostic::Report;
use crate::rules::Code;
use crate::source::{Source, Span};

/// Bytes of the largest file that is read. The shipped files have 3 KiB.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Nodes of a tree, those that aliases repeat included.
pub(crate) const MAX_NODES: usize = 50_000;
/// Levels of lists and maps.
pub(crate) const MAX_DEPTH: usize = 32;

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The text of a scalar; of a list or map its first character.
    pub(crate) span: Span,
    pub(crate) data: Data,
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// Nothing, `~` or `null`, unquoted.
    Null,
    /// Text as written, escapes and folding resolved.
    Scalar {
        text: String,
        /// Not quoted and no block scalar.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// What kind of thing this is, for a message.
    pub(crate) fn kind(&self) -> String {
        match &self.data {
            Data::Null => "nothing".to_owned(),
            Data::Scalar { text, plain } => scalar_kind(text, *plain),
            Data::List(items) => format!("a list of {}", items.len()),
            Data::Map(entries) => {
                format!(
                    "a map of {} key{}",
                    entries.len(),
                    if entries.len() == 1 { "" } else { "s" }
                )
            }
        }
    }
}

/// What a reader of the scalar would call it.
fn scalar_kind(text: &str, plain: bool) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let shown = crate::scalar::shown(text);
    if !plain {
        format!("the quoted text \"{shown}\"")
    } else if digits(text.strip_prefix('-').unwrap_or(text)) {
        format!("the integer {shown}")
    } else if matches!(text, "true" | "false") {
        format!("the boolean {shown}")
    } else {
        format!("the text `{shown}`")
    }
}

/// Parses the one document of `source`. Whatever is wrong goes to `report`; `None` when there is no
/// tree to look at. Duplicate keys are reported here and stay in the tree.
pub(crate) fn parse(source: &Source, report: &mut Report<'_>) -> Option<Node> {
    if source.text().len() > MAX_BYTES {
        let message = format!(
            "the file has {} bytes; a configuration has at most {MAX_BYTES}",
            source.text().len()
        );
        report.add(Code::TooLarge, "", Span::default(), message);
        return None;
    }
    if let Some(tab) = indenting_tab(source.text()) {
        report
            .add(Code::Tab, "", Span::new(tab, tab + 1), "a tab indents this line")
            .help("YAML indents with spaces only");
        return None;
    }
    let mut builder = Builder::new(source);
    if let Err(Fault { code, span, message }) = builder.run() {
        report.add(code, "", span, message);
        return None;
    }
    let Some(root) = builder.root.filter(|node| !matches!(node.data, Data::Null)) else {
        report
            .add(Code::Empty, "", Span::default(), "no configuration: the file holds no values")
            .help("start from one of the files in configs/");
        return None;
    };
    duplicates(&root, "", report);
    Some(root)
}

/// Offset of the first tab that indents a line with content.
fn indenting_tab(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive(['\n', '\r']) {
        let content = line.trim_start_matches([' ', '\t']);
        let indent = line.get(..line.len() - content.len()).unwrap_or("");
        let blank = content.trim_end().is_empty() || content.starts_with('#');
        if let Some(tab) = indent.find('\t').filter(|_| !blank) {
            return Some(at + tab);
        }
        at += line.len();
    }
    None
}

/// Reports every key that stands twice in one map, anywhere in the tree.
fn duplicates(node: &Node, path: &str, report: &mut Report<'_>) {
    match &node.data {
        Data::Null | Data::Scalar { .. } => {}
        Data::List(items) => {
            for (at, item) in items.iter().enumerate() {
                duplicates(item, &format!("{path}[{at}]"), report);
            }
        }
        Data::Map(entries) => {
            let mut first: BTreeMap<&str, Span> = BTreeMap::new();
            for entry in entries {
                let path = join(path, &entry.key);
                if let Some(earlier) = first.get(entry.key.as_str()) {
                    let line = report.source().position(earlier.start).line;
                    let message = format!("`{}` stands twice in this map", entry.key);
                    report
                        .add(Code::DuplicateKey, &path, entry.key_span, message)
                        .second(*earlier, "first here")
                        .help(format!("keep one of the two; the first is on line {line}"));
                } else {
                    first.insert(&entry.key, entry.key_span);
                }
                duplicates(&entry.value, &path, report);
            }
        }
    }
}

/// `path.key`, or `key` at the top.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Fault {
    code: Code,
    span: Span,
    message: String,
}

/// A list or map whose end has not come.
struct Open {
    anchor: usize,
    node: Node,
    /// The key whose value comes next.
    key: Option<(String, Span)>,
}

struct Builder<'s> {
    source: &'s Source,
    /// Byte offset of each character; empty when every character is one byte.
    offsets: Vec<usize>,
    stack: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

impl<'s> Builder<'s> {
    fn new(source: &'s Source) -> Self {
        let text = source.text();
        let offsets = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(at, _)| at).collect()
        };
        Self {
            source,
            offsets,
            stack: Vec::new(),
            anchors: BTreeMap::new(),
            nodes: 0,
            documents: 0,
            root: None,
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut parser = Parser::new(StrInput::new(self.source.text()));
        while let Some(event) = parser.next_event() {
            let (event, marks) = event.map_err(|error| Fault {
                code: Code::Syntax,
                span: self.point(error.marker().index()),
                message: format!("this is no YAML: {}", error.info()),
            })?;
            self.take(event, marks)?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event<'_>, marks: Marks) -> Result<(), Fault> {
        let span = self.span(marks);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.document(span),
            Event::Alias(id) => self.alias(id, span),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.as_deref(), span)?;
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let data =
                    if null { Data::Null } else { Data::Scalar { text: text.into_owned(), plain } };
                self.finished(anchor, Node { span, data })
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), span)?;
                self.open(anchor, Node { span, data: Data::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), span)?;
                self.open(anchor, Node { span, data: Data::Map(Vec::new()) })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(open) => self.finished(open.anchor, open.node),
                None => Ok(()),
            },
        }
    }

    fn document(&mut self, span: Span) -> Result<(), Fault> {
        self.documents += 1;
        if self.documents == 1 {
            return Ok(());
        }
        let message = "a second document starts here; which of the two counts is not clear";
        Err(Fault { code: Code::SecondDocument, span, message: message.to_owned() })
    }

    fn open(&mut self, anchor: usize, node: Node) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(node.span));
        }
        self.stack.push(Open { anchor, node, key: None });
        Ok(())
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<(), Fault> {
        let Some(node) = self.anchors.get(&id) else {
            let message = "this alias stands inside the value that it repeats".to_owned();
            return Err(Fault { code: Code::Alias, span, message });
        };
        self.nodes = self.nodes.saturating_add(size(node));
        let node = node.clone();
        self.limit(span)?;
        if self.stack.len() + depth(&node) > MAX_DEPTH {
            return Err(too_deep(span));
        }
        self.attach(node)
    }

    /// A node is complete: it is remembered under its anchor and goes where it belongs.
    fn finished(&mut self, anchor: usize, node: Node) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(1);
        if anchor != 0 {
            // The copy counts like the nodes of the tree: memory is what is limited.
            self.nodes = self.nodes.saturating_add(size(&node));
        }
        self.limit(node.span)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node)
    }

    fn limit(&self, span: Span) -> Result<(), Fault> {
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let message = format!("more than {MAX_NODES} values, those that aliases repeat included");
        Err(Fault { code: Code::TooManyValues, span, message })
    }

    fn attach(&mut self, node: Node) -> Result<(), Fault> {
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.data {
            Data::List(items) => items.push(node),
            Data::Map(entries) => match open.key.take() {
                Some((key, key_span)) => entries.push(Entry { key, key_span, value: node }),
                None => open.key = Some(key_of(node)?),
            },
            Data::Null | Data::Scalar { .. } => {}
        }
        Ok(())
    }

    fn span(&self, marks: Marks) -> Span {
        let span = Span::new(self.offset(marks.start.index()), self.offset(marks.end.index()));
        // The span of a plain scalar may run into the white space behind it.
        let trimmed = self.source.slice(span).trim_end().len();
        Span::new(span.start, span.start + trimmed)
    }

    fn point(&self, index: usize) -> Span {
        let start = self.offset(index).min(self.source.text().len());
        let width = self.source.text().get(start..).and_then(|rest| rest.chars().next());
        Span::new(start, start + width.map_or(0, char::len_utf8))
    }

    fn offset(&self, index: usize) -> usize {
        if self.offsets.is_empty() {
            return index.min(self.source.text().len());
        }
        self.offsets.get(index).copied().unwrap_or(self.source.text().len())
    }
}

fn refuse_tag(tag: Option<&saphyr_parser::Tag>, span: Span) -> Result<(), Fault> {
    match tag {
        None => Ok(()),
        Some(tag) => {
            let message = format!("the tag `{tag}`: a configuration has no tags");
            Err(Fault { code: Code::Tag, span, message })
        }
    }
}

fn key_of(node: Node) -> Result<(String, Span), Fault> {
    let span = node.span;
    match node.data {
        Data::Scalar { text, .. } => Ok((text, span)),
        Data::Null | Data::List(_) | Data::Map(_) => {
            let message = format!("a key is a word, not {}", node.kind());
            Err(Fault { code: Code::Key, span, message })
        }
    }
}

fn too_deep(span: Span) -> Fault {
    let message = format!("more than {MAX_DEPTH} levels of lists and maps");
    Fault { code: Code::TooDeep, span, message }
}

/// Levels of lists and maps in a subtree; at most [`MAX_DEPTH`], as all that walk a tree rely on.
fn depth(node: &Node) -> usize {
    match &node.data {
        Data::Null | Data::Scalar { .. } => 0,
        Data::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Data::Map(entries) => {
            1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0)
        }
    }
}

/// Nodes of a subtree.
fn size(node: &Node) -> usize {
    1 + match &node.data {
        Data::Null | Data::Scalar { .. } => 0,
        Data::List(items) => items.iter().map(size).sum(),
        Data::Map(entries) => entries.iter().map(|entry| size(&entry.value)).sum(),
    }
}
