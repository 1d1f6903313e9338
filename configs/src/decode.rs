//! Tree → values, driven by the table: each key known, each value of its type and in its range.

use std::net::IpAddr;

use crate::diagnostic::Report;
use crate::fields::{Fields, Given, Item, Value};
use crate::model::Address;
use crate::rules::Code;
use crate::scalar::{self, IntegerFault, PortFault, shown};
use crate::source::Span;
use crate::table::{Field, Kind, Presence, Preset, ROOT, Section, Support, Word};
use crate::tree::{Data, Entry, Node, join};

/// Decodes the whole file. `eth_dst` replaces the destination MAC of every sender, whatever the
/// file says there.
pub(crate) fn decode(root: &Node, eth_dst: Option<[u8; 6]>, report: &mut Report<'_>) -> Fields {
    let mut decoder = Decoder { report, eth_dst };
    match &root.data {
        Data::Map(entries) => decoder.fields(&ROOT, entries, "", Span::default()),
        _ => {
            let message = format!("the file is {}, not a map of keys", root.kind());
            decoder.report.add(Code::Type, "", root.span, message);
            let given = Vec::new();
            Fields { section: &ROOT, path: String::new(), anchor: Span::default(), given }
        }
    }
}

struct Decoder<'r, 's> {
    report: &'r mut Report<'s>,
    eth_dst: Option<[u8; 6]>,
}

impl Decoder<'_, '_> {
    fn fields(
        &mut self,
        section: &'static Section,
        entries: &[Entry],
        path: &str,
        anchor: Span,
    ) -> Fields {
        let mut fields = Fields { section, path: path.to_owned(), anchor, given: Vec::new() };
        for entry in entries {
            let path = join(path, &entry.key);
            let meant = match section.field(&entry.key) {
                Some(field) => Some(field),
                None => self.unknown(section, entries, entry, &path),
            };
            // Of a key that stands twice the first counts; the tree has reported it.
            if let Some(field) = meant.filter(|field| fields.given(field.key).is_none()) {
                let item = self.entry(field, entry, &path);
                fields.given.push(Given { field, key_span: entry.key_span, item });
            }
        }
        for field in section.fields {
            let replaced = field.key == "eth_dst_addr" && self.eth_dst.is_some();
            let missing = field.presence == Presence::Required && fields.given(field.key).is_none();
            if missing && !replaced {
                let message = format!("`{}` is missing in `{}`", field.key, section.name);
                self.report
                    .add(Code::Missing, &fields.path(field.key), anchor, message)
                    .expected(expected(&field.kind))
                    .help(format!("`{}`: {}", field.key, field.doc));
            }
        }
        fields
    }

    /// Reports a key that the section does not have. Returns the field that was meant, when one
    /// known key is nearest and the map lacks it: what the misspelt key holds then counts as that
    /// field's, so that one misspelling is one error, and faults below it are found in the same
    /// pass.
    fn unknown(
        &mut self,
        section: &'static Section,
        entries: &[Entry],
        entry: &Entry,
        path: &str,
    ) -> Option<&'static Field> {
        let key = shown(&entry.key);
        let known = section.fields.iter().map(|field| field.key);
        let near = scalar::nearest(&entry.key, known);
        // `bench_rz` is a misspelt `bench_rx`, not a block of another program.
        let foreign = crate::table::foreign(&entry.key)
            .filter(|_| section.name == ROOT.name && near.is_none());
        if foreign.is_some() {
            self.support(foreign, path, entry.key_span, &key);
            return None;
        }
        if entry.key == "<<" {
            self.report
                .add(Code::Merge, path, entry.key_span, "`<<` is a merge key of YAML 1.1")
                .help("YAML 1.2 has no merge keys; write the keys out");
            return None;
        }
        let message = format!("`{key}` is no key of `{}`", section.name);
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => match home(&ROOT, &entry.key) {
                Some(other) => format!("`{key}` is a key of `{other}`"),
                None => {
                    let all: Vec<&str> = section.fields.iter().map(|field| field.key).collect();
                    format!("its keys are {}", all.join(", "))
                }
            },
        };
        self.report.add(Code::UnknownKey, path, entry.key_span, message).help(help);
        scalar::meant(&entry.key, section.fields.iter().map(|field| field.key))
            .filter(|meant| entries.iter().all(|other| other.key != *meant))
            .and_then(|meant| section.field(meant))
    }

    fn entry(&mut self, field: &'static Field, entry: &Entry, path: &str) -> Item {
        let span = entry.value.span;
        if let Some(mac) = self.eth_dst.filter(|_| field.key == "eth_dst_addr") {
            return Item { value: Value::Mac(mac), span };
        }
        let value = self.value(&field.kind, &entry.value, path, entry.key_span);
        let same = match (&value, field.presence) {
            (Value::Bad, _) => true,
            (Value::Integer(value), Presence::Default(Preset::Integer(preset))) => *value == preset,
            (Value::Boolean(value), Presence::Default(Preset::Boolean(preset))) => *value == preset,
            _ => false,
        };
        if !same {
            self.support(Some(field.support), path, entry.key_span, field.key);
        }
        Item { value, span }
    }

    /// Says what becomes of a key or word that does not run here.
    fn support(&mut self, support: Option<Support>, path: &str, span: Span, what: &str) {
        match support {
            None | Some(Support::Runs) => {}
            Some(Support::Ignored(why)) => {
                let message = format!("`{what}` has no effect: {why}");
                self.report.add(Code::Ignored, path, span, message);
            }
            Some(Support::Unsupported(why)) => {
                let message = format!("`{what}` cannot run here: {why}");
                self.report.add(Code::Feature, path, span, message);
            }
        }
    }

    fn value(&mut self, kind: &'static Kind, node: &Node, path: &str, anchor: Span) -> Value {
        match (kind, &node.data) {
            (Kind::Foreign, _) => {
                let key = path.to_owned();
                self.support(crate::table::foreign(&key), path, anchor, &key);
                Value::Foreign
            }
            (Kind::Map(section) | Kind::MapOrList(section), Data::Map(entries)) => {
                Value::Map(self.fields(section, entries, path, anchor))
            }
            (Kind::List(of), Data::List(items)) => {
                self.list(items, path, anchor, |this, item, path, anchor| {
                    this.value(of, item, path, anchor)
                })
            }
            (Kind::MapOrList(section), Data::List(items)) => {
                self.list(items, path, anchor, |this, item, path, anchor| match &item.data {
                    Data::Map(entries) => Value::Map(this.fields(section, entries, path, anchor)),
                    _ => this.wrong_type(&Kind::Map(section), item, path, anchor),
                })
            }
            (_, Data::Scalar { text, plain }) => {
                self.scalar(kind, Written { text, plain: *plain, node, path, anchor })
            }
            _ => self.wrong_type(kind, node, path, anchor),
        }
    }

    fn list(
        &mut self,
        nodes: &[Node],
        path: &str,
        anchor: Span,
        mut one: impl FnMut(&mut Self, &Node, &str, Span) -> Value,
    ) -> Value {
        let mut items = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let path = format!("{path}[{at}]");
            // What misses in a map of a list is shown at the map's first key.
            let anchor = match &node.data {
                Data::Map(entries) => entries.first().map_or(anchor, |entry| entry.key_span),
                _ if node.span.is_empty() => anchor,
                _ => node.span,
            };
            items.push(Item { value: one(self, node, &path, anchor), span: anchor });
        }
        Value::List(items)
    }

    fn wrong_type(&mut self, kind: &Kind, node: &Node, path: &str, anchor: Span) -> Value {
        let span = match node.data {
            Data::Scalar { .. } => node.span,
            Data::Null | Data::List(_) | Data::Map(_) => anchor,
        };
        let message = format!("{} where {} is due", node.kind(), expected(kind));
        let found = self.report.add(Code::Type, path, span, message).expected(expected(kind));
        match &node.data {
            Data::List(items) if items.len() == 1 && !matches!(kind, Kind::Map(_)) => {
                found.help("write the value without the brackets or the dash");
            }
            Data::Map(_) if matches!(kind, Kind::List(_)) => {
                found.help("put `- ` before the first key of each item");
            }
            Data::Null => {
                found.help("fill in a value, or take the key out");
            }
            _ => {}
        }
        Value::Bad
    }

    fn scalar(&mut self, kind: &'static Kind, written: Written<'_>) -> Value {
        if scalar::placeholder(written.text) {
            let message = format!("`{}` was never filled in", shown(written.text));
            self.report
                .add(Code::Placeholder, written.path, written.node.span, message)
                .expected(expected(kind))
                .help("put the value of your machine here");
            return Value::Bad;
        }
        match kind {
            Kind::Integer { min, max } => self.integer(*min, *max, written),
            Kind::Boolean => self.boolean(written),
            Kind::Words(words) => self.word(words, written),
            Kind::Ports => self.ports(written),
            Kind::Text if written.text.is_empty() => {
                let Written { node, path, .. } = written;
                self.report.add(Code::EmptyText, path, node.span, "an empty text");
                Value::Bad
            }
            Kind::Text => Value::Text(written.text.to_owned()),
            Kind::Address => self.address(written),
            Kind::Mac => match crate::mac(written.text) {
                Some(mac) => Value::Mac(mac),
                None => self.malformed(Code::Mac, kind, written),
            },
            Kind::Ipv4 => match scalar::ipv4(written.text) {
                Some(address) => Value::Ipv4(address),
                None => self.malformed(Code::Ipv4, kind, written),
            },
            Kind::Map(_) | Kind::List(_) | Kind::MapOrList(_) | Kind::Foreign => {
                self.wrong_type(kind, written.node, written.path, written.anchor)
            }
        }
    }

    fn malformed(&mut self, code: Code, kind: &Kind, written: Written<'_>) -> Value {
        let Written { text, node, path, .. } = written;
        let message = format!("`{}` is not {}", shown(text), expected(kind));
        self.report.add(code, path, node.span, message).expected(expected(kind));
        Value::Bad
    }

    fn integer(&mut self, min: u64, max: u64, written: Written<'_>) -> Value {
        let Written { text, plain, node, path, .. } = written;
        let range = expected(&Kind::Integer { min, max });
        let text = shown(text);
        let (code, message) = match scalar::integer(written.text) {
            Ok(value) if !plain => {
                let message = format!("\"{text}\" is text: an integer is written without quotes");
                self.report
                    .add(Code::Spelling, path, node.span, message)
                    .expected(range)
                    .help(format!("write {value}"));
                return Value::Bad;
            }
            Ok(value) if (min..=max).contains(&value) => return Value::Integer(value),
            Ok(value) if value < min => (Code::Range, format!("{text} is below {min}")),
            Ok(_) => (Code::Range, format!("{text} is above {max}")),
            Err(IntegerFault::Negative) => (Code::Range, format!("{text} is below {min}")),
            Err(IntegerFault::TooLarge) => (Code::Range, format!("{text} is above {max}")),
            Err(IntegerFault::NoInteger) => {
                (Code::Type, format!("{} where {range} is due", node.kind()))
            }
            Err(fault) => (Code::Spelling, format!("{text} is refused: {fault}")),
        };
        let found = self.report.add(code, path, node.span, message).expected(range);
        if code == Code::Spelling {
            found.help("integers are decimal without leading zeros, `0x…` or `0o…`");
        }
        Value::Bad
    }

    fn boolean(&mut self, written: Written<'_>) -> Value {
        let Written { text, plain, node, path, anchor } = written;
        match text {
            "true" if plain => return Value::Boolean(true),
            "false" if plain => return Value::Boolean(false),
            _ => {}
        }
        let meant = match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" | "1" => "true",
            "false" | "no" | "off" | "n" | "0" => "false",
            _ => return self.wrong_type(&Kind::Boolean, node, path, anchor),
        };
        let quoted = if plain { "" } else { "quoted " };
        let message = format!("{quoted}`{}` is a boolean to some readers only", shown(text));
        self.report
            .add(Code::Boolean, path, node.span, message)
            .expected(expected(&Kind::Boolean))
            .help(format!("write {meant}"));
        Value::Bad
    }

    fn word(&mut self, words: &'static [Word], written: Written<'_>) -> Value {
        let Written { text, node, path, .. } = written;
        if let Some(word) = words.iter().find(|word| word.text == text) {
            self.support(Some(word.support), path, node.span, word.text);
            return Value::Word(word.text);
        }
        let message = format!("`{}` is not one of the words for this key", shown(text));
        let all = expected(&Kind::Words(words));
        let found = self.report.add(Code::Word, path, node.span, message).expected(all);
        if let Some(near) = scalar::nearest(text, words.iter().map(|word| word.text)) {
            found.help(format!("did you mean `{near}`?"));
        }
        Value::Bad
    }

    fn ports(&mut self, written: Written<'_>) -> Value {
        let Written { text, plain, node, path, .. } = written;
        let shown = shown(text);
        let (code, message) = match scalar::ports(text) {
            Ok((first, _)) if !plain && !text.contains('-') => {
                let message = format!("\"{shown}\" is text: a port is written without quotes");
                self.report
                    .add(Code::Spelling, path, node.span, message)
                    .expected(expected(&Kind::Ports))
                    .help(format!("write {first}"));
                return Value::Bad;
            }
            Ok((first, last)) => return Value::Ports(first, last),
            Err(PortFault::TooLarge) => (Code::Range, format!("{shown} is not from 0 to 65535")),
            Err(PortFault::Backwards) => (Code::Range, format!("{shown} ends before it begins")),
            Err(PortFault::Spelling(IntegerFault::NoInteger)) => {
                (Code::Type, format!("{} where {} is due", node.kind(), expected(&Kind::Ports)))
            }
            Err(PortFault::Spelling(fault)) => {
                (Code::Spelling, format!("{shown} is refused: {fault}"))
            }
        };
        self.report.add(code, path, node.span, message).expected(expected(&Kind::Ports));
        Value::Bad
    }

    fn address(&mut self, written: Written<'_>) -> Value {
        let text = written.text;
        if text == "loopback" {
            return Value::Address(Address::Loopback);
        }
        if let Some(pci) = scalar::pci(text) {
            return Value::Address(Address::Pci(pci));
        }
        if let Some(ip) = scalar::ipv4(text) {
            return Value::Address(Address::Ip(IpAddr::V4(ip)));
        }
        if scalar::virtual_device(text) {
            return Value::Address(Address::Virtual(text.to_owned()));
        }
        // The kernel's rule for interface names, and two of ours: a colon is a PCI address that
        // went wrong, a comma a virtual device.
        let name = (1..16).contains(&text.len())
            && !text
                .contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ','))
            && !matches!(text, "." | "..");
        let number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if name && !number && !text.contains(':') {
            return Value::Address(Address::Interface(text.to_owned()));
        }
        let ipv6 = text.parse().map(|ip| Value::Address(Address::Ip(IpAddr::V6(ip))));
        ipv6.unwrap_or_else(|_| self.malformed(Code::Address, &Kind::Address, written))
    }
}

/// A scalar with all that a message about it needs.
#[derive(Clone, Copy)]
struct Written<'a> {
    text: &'a str,
    plain: bool,
    node: &'a Node,
    path: &'a str,
    anchor: Span,
}

/// The section that knows `key`, anywhere in the table.
fn home(section: &'static Section, key: &str) -> Option<&'static str> {
    if section.field(key).is_some() {
        return Some(section.name);
    }
    section.fields.iter().find_map(|field| inner(&field.kind).and_then(|inner| home(inner, key)))
}

/// The maps that a value is made of.
pub(crate) fn inner(kind: &'static Kind) -> Option<&'static Section> {
    match kind {
        Kind::Map(section) | Kind::MapOrList(section) => Some(section),
        Kind::List(of) => inner(of),
        _ => None,
    }
}

/// What a value must be, for messages and for the docs.
pub(crate) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Integer { min, max } if min == max => format!("the integer {min}"),
        Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
        Kind::Boolean => "`true` or `false`".to_owned(),
        Kind::Text => "a text".to_owned(),
        Kind::Words(words) => {
            let all: Vec<String> = words
                .iter()
                .map(|word| match word.text {
                    "" => "`\"\"`".to_owned(),
                    text => format!("`{text}`"),
                })
                .collect();
            all.join(" or ")
        }
        Kind::Address => {
            "a PCI address (domain:bus:device.function, as 0000:01:00.0), an interface name, \
             a virtual device of DPDK (as net_memif0,role=server), an IP address or `loopback`"
                .to_owned()
        }
        Kind::Mac => "a MAC address (as 02:00:00:00:00:01)".to_owned(),
        Kind::Ipv4 => "an IPv4 address (as 10.0.0.1)".to_owned(),
        Kind::Ports => "a port from 0 to 65535 or a range (as 1000-1010)".to_owned(),
        Kind::Map(section) => format!("a map ({})", section.doc),
        Kind::List(of) => match inner_name(of) {
            Some(name) => format!("a list of {name}"),
            None => format!("a list, each {}", expected(of)),
        },
        Kind::MapOrList(section) => format!("a map or a list of maps ({})", section.doc),
        Kind::Foreign => "anything".to_owned(),
    }
}

fn inner_name(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::Map(section) => Some(section.name),
        _ => None,
    }
}
