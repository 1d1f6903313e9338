//! The table of fields as a JSON Schema, for editors.

use crate::json::Json;
use crate::table::{Field, Kind, Presence, Preset, ROOT, Section, Support};

/// A JSON Schema (draft 7) of the whole file: descriptions, units, ranges, words and defaults come
/// from the table that decodes it.
#[must_use]
pub fn schema() -> String {
    let mut entries = vec![
        ("$schema".to_owned(), Json::text("http://json-schema.org/draft-07/schema#")),
        ("title".to_owned(), Json::text("tensorwire configuration (DAQIRI YAML)")),
    ];
    let Json::Map(root) = section(&ROOT) else { return String::new() };
    entries.extend(root);
    let foreign = Json::map([("^(bench|rdma_bench|socket_bench)_", Json::map([]))]);
    entries.push(("patternProperties".to_owned(), foreign));
    Json::Map(entries).pretty()
}

fn section(section: &Section) -> Json {
    let properties = section.fields.iter().map(|field| (field.key, property(field)));
    let required = section.fields.iter().filter(|field| field.presence == Presence::Required);
    let required: Vec<Json> = required.map(|field| Json::text(field.key)).collect();
    let mut entries = vec![
        ("type", Json::text("object")),
        ("description", Json::text(section.doc)),
        ("additionalProperties", Json::Bool(false)),
        ("properties", Json::map(properties)),
    ];
    if !required.is_empty() {
        entries.push(("required", Json::List(required)));
    }
    Json::map(entries)
}

fn property(field: &Field) -> Json {
    let mut doc = field.doc.to_owned();
    if !field.unit.is_empty() {
        doc = format!("{doc} ({})", field.unit);
    }
    if let Support::Ignored(why) | Support::Unsupported(why) = field.support
        && why != field.doc
    {
        doc = format!("{doc}; not run here: {why}");
    }
    let Json::Map(mut entries) = value(&field.kind) else { return value(&field.kind) };
    entries.retain(|(key, _)| key != "description");
    entries.push(("description".to_owned(), Json::text(doc)));
    if let Presence::Default(preset) = field.presence {
        let preset = match preset {
            Preset::Integer(value) => Json::Number(value),
            Preset::Boolean(value) => Json::Bool(value),
            Preset::Word(text) | Preset::Text(text) => Json::text(text),
        };
        entries.push(("default".to_owned(), preset));
    }
    Json::Map(entries)
}

fn value(kind: &Kind) -> Json {
    let of = |name: &'static str| ("type", Json::text(name));
    match kind {
        Kind::Integer { min, max } => Json::map([
            of("integer"),
            ("minimum", Json::Number(*min)),
            ("maximum", Json::Number(*max)),
        ]),
        Kind::Boolean => Json::map([of("boolean")]),
        Kind::Text | Kind::Address => Json::map([of("string"), ("minLength", Json::Number(1))]),
        Kind::Words(words) => {
            let words = words.iter().map(|word| Json::text(word.text)).collect();
            Json::map([("enum", Json::List(words))])
        }
        Kind::Mac => Json::map([of("string"), pattern("^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$")]),
        Kind::Ipv4 => Json::map([of("string"), pattern("^[0-9]{1,3}(\\.[0-9]{1,3}){3}$")]),
        Kind::Ports => {
            let one = value(&Kind::Integer { min: 0, max: 65_535 });
            let range = Json::map([of("string"), pattern("^[0-9]+ *- *[0-9]+$")]);
            Json::map([("anyOf", Json::List(vec![one, range]))])
        }
        Kind::Map(inner) => section(inner),
        Kind::List(of_kind) => Json::map([of("array"), ("items", value(of_kind))]),
        Kind::MapOrList(inner) => {
            let list = Json::map([of("array"), ("items", section(inner))]);
            Json::map([("anyOf", Json::List(vec![section(inner), list]))])
        }
        Kind::Foreign => Json::map([]),
    }
}

fn pattern(pattern: &'static str) -> (&'static str, Json) {
    ("pattern", Json::text(pattern))
}
