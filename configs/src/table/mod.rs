//! The table of fields: every key that a configuration may hold, once.
//!
//! Decoding, the JSON Schema and the tables of `docs/config.md` are all driven by it. A key that
//! is not here does not exist; a value that the table does not allow never reaches a typed
//! [`crate::Config`].

mod app;
mod device;

pub use app::ROOT;
pub(crate) use app::foreign;

/// A map of the file, with the keys that it may hold.
#[derive(Debug)]
pub struct Section {
    /// How messages call it, as `rx.queues[]`.
    pub name: &'static str,
    /// One line: what it describes.
    pub doc: &'static str,
    /// Its keys, in the order of the documentation.
    pub fields: &'static [Field],
}

/// One key.
#[derive(Debug)]
pub struct Field {
    /// The key as it is written.
    pub key: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Whether it must be there, and what holds if it is not.
    pub presence: Presence,
    /// Whether this program runs it.
    pub support: Support,
    /// Unit of the value, empty if it has none.
    pub unit: &'static str,
    /// One line: what it means.
    pub doc: &'static str,
}

/// What a value may be.
#[derive(Debug)]
pub enum Kind {
    /// An integer in this range, both ends inside.
    Integer {
        /// Least value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `true` or `false`.
    Boolean,
    /// Text that is not empty.
    Text,
    /// One of these words.
    Words(&'static [Word]),
    /// PCI address, interface name, IP address or `loopback`.
    Address,
    /// Six hexadecimal pairs with colons.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// A UDP port or a range of them.
    Ports,
    /// A map with these keys.
    Map(&'static Section),
    /// A list.
    List(&'static Kind),
    /// One map, or a list of them.
    MapOrList(&'static Section),
    /// A block of another program: not looked at.
    Foreign,
}

/// One word that a key may be set to.
#[derive(Debug)]
pub struct Word {
    /// The word.
    pub text: &'static str,
    /// Whether this program runs it.
    pub support: Support,
}

/// Whether a key must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its map is wrong without it.
    Required,
    /// It may be absent and then says nothing.
    Optional,
    /// Absent means this.
    Default(Preset),
}

/// A default value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Of an integer.
    Integer(u64),
    /// Of a boolean.
    Boolean(bool),
    /// Of a word.
    Word(&'static str),
    /// Of a text.
    Text(&'static str),
}

/// What this program does with a key or word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has its effect.
    Runs,
    /// It has no effect here, for this reason; one note says so.
    Ignored(&'static str),
    /// The file is right but cannot run here, for this reason.
    Unsupported(&'static str),
}

impl Section {
    /// The field of a key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }
}

const fn field(key: &'static str, kind: Kind, doc: &'static str) -> Field {
    let (presence, support) = (Presence::Optional, Support::Runs);
    Field { key, kind, presence, support, unit: "", doc }
}

const fn integer(key: &'static str, min: u64, max: u64, doc: &'static str) -> Field {
    field(key, Kind::Integer { min, max }, doc)
}

/// A core number. The machine's own are checked when the run pins its threads.
const fn core(key: &'static str, doc: &'static str) -> Field {
    integer(key, 0, 4095, doc)
}

const fn boolean(key: &'static str, doc: &'static str) -> Field {
    field(key, Kind::Boolean, doc)
}

const fn text(key: &'static str, doc: &'static str) -> Field {
    field(key, Kind::Text, doc)
}

const fn words(key: &'static str, words: &'static [Word], doc: &'static str) -> Field {
    field(key, Kind::Words(words), doc)
}

const fn mac(key: &'static str, doc: &'static str) -> Field {
    field(key, Kind::Mac, doc)
}

const fn ipv4(key: &'static str, doc: &'static str) -> Field {
    field(key, Kind::Ipv4, doc)
}

const fn map(key: &'static str, section: &'static Section, doc: &'static str) -> Field {
    field(key, Kind::Map(section), doc)
}

const fn list(key: &'static str, of: &'static Kind, doc: &'static str) -> Field {
    field(key, Kind::List(of), doc)
}

impl Field {
    const fn required(mut self) -> Self {
        self.presence = Presence::Required;
        self
    }

    const fn preset(mut self, preset: Preset) -> Self {
        self.presence = Presence::Default(preset);
        self
    }

    const fn or(self, value: u64) -> Self {
        self.preset(Preset::Integer(value))
    }

    const fn or_word(self, word: &'static str) -> Self {
        self.preset(Preset::Word(word))
    }

    const fn off(self) -> Self {
        self.preset(Preset::Boolean(false))
    }

    const fn on(self) -> Self {
        self.preset(Preset::Boolean(true))
    }

    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    const fn ignored(mut self, why: &'static str) -> Self {
        self.support = Support::Ignored(why);
        self
    }

    const fn unsupported(mut self, why: &'static str) -> Self {
        self.support = Support::Unsupported(why);
        self
    }
}

const fn word(text: &'static str) -> Word {
    Word { text, support: Support::Runs }
}

const fn not_here(text: &'static str, why: &'static str) -> Word {
    Word { text, support: Support::Unsupported(why) }
}
