//! The values of a file, by key: what decoding makes and all later checks read.

use std::net::Ipv4Addr;

use crate::decode::inner;
use crate::model::Address;
use crate::source::Span;
use crate::table::{Field, Presence, Preset, ROOT, Section};
use crate::tree::join;

/// A map whose keys were decoded.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) section: &'static Section,
    /// Key path of the map; empty for the root.
    pub(crate) path: String,
    /// Where to point when something is missing: the key that the map stands under.
    pub(crate) anchor: Span,
    pub(crate) given: Vec<Given>,
}

/// A key that stands in the file.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) field: &'static Field,
    pub(crate) key_span: Span,
    pub(crate) item: Item,
}

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

impl Item {
    /// A list without items.
    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(&self.value, Value::List(items) if items.is_empty())
    }
}

#[derive(Debug)]
pub(crate) enum Value {
    Integer(u64),
    Boolean(bool),
    Text(String),
    Word(&'static str),
    Address(Address),
    Mac([u8; 6]),
    Ipv4(Ipv4Addr),
    Ports(u16, u16),
    List(Vec<Item>),
    Map(Fields),
    Foreign,
    /// Already reported. Checks that need the value keep quiet.
    Bad,
}

impl Fields {
    /// The key as it stands in the file, decoded or not.
    pub(crate) fn given(&self, key: &str) -> Option<&Given> {
        debug_assert!(self.section.field(key).is_some(), "{key} is in no table");
        self.given.iter().find(|given| given.field.key == key)
    }

    /// Whether the table has this key for maps of this kind.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.section.field(key).is_some()
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.given(key).map(|given| &given.item.value)
    }

    fn preset(&self, key: &str) -> Option<Preset> {
        match self.section.field(key)?.presence {
            Presence::Default(preset) if self.given(key).is_none() => Some(preset),
            _ => None,
        }
    }

    /// An integer, or its default. `None` when absent or already refused.
    pub(crate) fn integer(&self, key: &str) -> Option<u64> {
        match (self.value(key), self.preset(key)) {
            (Some(Value::Integer(value)), _) => Some(*value),
            (None, Some(Preset::Integer(value))) => Some(value),
            _ => None,
        }
    }

    /// An integer whose range in the table fits 32 bits.
    pub(crate) fn small(&self, key: &str) -> Option<u32> {
        self.integer(key).and_then(|value| u32::try_from(value).ok())
    }

    /// A boolean or its default; false when already refused.
    pub(crate) fn flag(&self, key: &str) -> bool {
        match (self.value(key), self.preset(key)) {
            (Some(Value::Boolean(value)), _) => *value,
            (None, Some(Preset::Boolean(value))) => value,
            _ => false,
        }
    }

    /// One of the words of the table, or the default.
    pub(crate) fn word(&self, key: &str) -> Option<&'static str> {
        match (self.value(key), self.preset(key)) {
            (Some(Value::Word(word)), _) => Some(word),
            (None, Some(Preset::Word(word))) => Some(word),
            _ => None,
        }
    }

    /// A text or its default.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match (self.value(key), self.preset(key)) {
            (Some(Value::Text(text)), _) => Some(text),
            (None, Some(Preset::Text(text))) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn address(&self, key: &str) -> Option<&Address> {
        match self.value(key) {
            Some(Value::Address(address)) => Some(address),
            _ => None,
        }
    }

    pub(crate) fn mac(&self, key: &str) -> Option<[u8; 6]> {
        match self.value(key) {
            Some(Value::Mac(mac)) => Some(*mac),
            _ => None,
        }
    }

    pub(crate) fn ipv4(&self, key: &str) -> Option<Ipv4Addr> {
        match self.value(key) {
            Some(Value::Ipv4(address)) => Some(*address),
            _ => None,
        }
    }

    pub(crate) fn ports(&self, key: &str) -> Option<(u16, u16)> {
        match self.value(key) {
            Some(Value::Ports(first, last)) => Some((*first, *last)),
            _ => None,
        }
    }

    pub(crate) fn map(&self, key: &str) -> Option<&Self> {
        match self.value(key) {
            Some(Value::Map(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The items of a list; one map counts as a list of one where both are allowed.
    pub(crate) fn items(&self, key: &str) -> &[Item] {
        match self.given(key).map(|given| &given.item) {
            Some(Item { value: Value::List(items), .. }) => items,
            Some(item @ Item { value: Value::Map(_), .. }) => std::slice::from_ref(item),
            _ => &[],
        }
    }

    /// The maps of a list.
    pub(crate) fn maps(&self, key: &str) -> impl Iterator<Item = &Self> {
        self.items(key).iter().filter_map(|item| match &item.value {
            Value::Map(fields) => Some(fields),
            _ => None,
        })
    }

    /// The texts of a list.
    pub(crate) fn texts(&self, key: &str) -> impl Iterator<Item = (&str, Span)> {
        self.items(key).iter().filter_map(|item| match &item.value {
            Value::Text(text) => Some((text.as_str(), item.span)),
            _ => None,
        })
    }

    /// The integers of a list.
    pub(crate) fn integers(&self, key: &str) -> impl Iterator<Item = (u64, Span)> {
        self.items(key).iter().filter_map(|item| match &item.value {
            Value::Integer(value) => Some((*value, item.span)),
            _ => None,
        })
    }

    /// Where a key's value stands; the key of the map itself when it is absent.
    pub(crate) fn span(&self, key: &str) -> Span {
        match self.given(key) {
            Some(given) => match given.item.value {
                Value::List(_) | Value::Map(_) | Value::Foreign => given.key_span,
                _ if given.item.span.is_empty() => given.key_span,
                _ => given.item.span,
            },
            None => self.anchor,
        }
    }

    /// Key path of a key of this map.
    pub(crate) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

/// An absent block of the root: all of its defaults.
pub(crate) fn absent(key: &str) -> Option<Fields> {
    let section = inner(&ROOT.field(key)?.kind)?;
    let (path, anchor, given) = (key.to_owned(), Span::default(), Vec::new());
    Some(Fields { section, path, anchor, given })
}
