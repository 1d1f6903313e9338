//! The layers of an engine, out of TensorRT's own description (`IEngineInspector`, JSON).
//!
//! An engine that was built without `--detailed` names its layers and says no more.

use serde_json::Value;

/// A layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// What it computes in: the format of its first output.
    pub format: String,
    /// The kernel that was chosen.
    pub tactic: String,
    /// Bytes of its weights and biases, where it says them.
    pub weight_bytes: u64,
}

/// The description as JSON. TensorRT 8.6 puts what separates the names of ONNX layers (U+001E) into
/// its strings as it is, which JSON forbids.
///
/// # Errors
///
/// Those of the reader, where it is no JSON otherwise either.
pub fn parse(description: &str) -> serde_json::Result<Value> {
    let mut json = String::with_capacity(description.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in description.chars() {
        if quoted && c < ' ' {
            json += &format!("\\u{:04x}", u32::from(c));
            escaped = false;
            continue;
        }
        // A quote ends a string unless the character before it takes it along.
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        json.push(c);
    }
    serde_json::from_str(&json)
}

/// Bytes of the constants that a layer names by type and number.
fn constants(layer: &Value, key: &str) -> u64 {
    let Some(constants) = layer.get(key) else { return 0 };
    let each = match text(constants, "Type").as_str() {
        "Float" | "Int32" => 4,
        "Half" | "BFloat16" => 2,
        "Int8" | "FP8" | "Bool" => 1,
        _ => 0,
    };
    constants.get("Count").and_then(Value::as_u64).map_or(0, |count| count.saturating_mul(each))
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The layers of a description; what it does not say is empty.
#[must_use]
pub fn of(information: &Value) -> Vec<Layer> {
    let layers = information.get("Layers").and_then(Value::as_array);
    let layer = |value: &Value| {
        if let Some(name) = value.as_str() {
            return Layer { name: name.to_owned(), ..Layer::default() };
        }
        let output = value.get("Outputs").and_then(|outputs| outputs.get(0));
        Layer {
            name: text(value, "Name"),
            kind: text(value, "LayerType"),
            format: output.map_or_else(String::new, |o| text(o, "Format/Datatype")),
            tactic: text(value, "TacticName"),
            weight_bytes: constants(value, "Weights").saturating_add(constants(value, "Bias")),
        }
    };
    layers.into_iter().flatten().map(layer).collect()
}

/// Layers as a table, with how many there are of each format.
#[must_use]
pub fn table(layers: &[Layer]) -> String {
    let mut text = format!("layers  {}\n", layers.len());
    let mut formats: Vec<(&str, usize)> = Vec::new();
    for layer in layers {
        let Layer { name, kind, format, tactic, weight_bytes } = layer;
        if kind.is_empty() {
            text += &format!("  {name}\n");
            continue;
        }
        let weights = match weight_bytes {
            0 => String::new(),
            bytes => format!("; weights {:.1} KiB", *bytes as f64 / 1024.0),
        };
        text += &format!("  {kind:<18} {name}\n    {format}; {tactic}{weights}\n");
        match formats.iter_mut().find(|(known, _)| known == format) {
            Some((_, count)) => *count += 1,
            None => formats.push((format, 1)),
        }
    }
    if formats.is_empty() && !layers.is_empty() {
        text += "build with --detailed for kinds, formats and tactics\n";
    }
    for (format, count) in formats {
        text += &format!("{count:>7} give {format}\n");
    }
    let weights: u64 = layers.iter().map(|layer| layer.weight_bytes).sum();
    if weights > 0 {
        text += &format!("weights {:.1} MiB\n", weights as f64 / f64::from(1 << 20));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAILED: &str = r#"{"Layers": [
        {"Name": "Reformatting CopyNode for Input 0", "LayerType": "Reformat",
         "Outputs": [{"Name": "x", "Format/Datatype": "Channel major FP16"}],
         "TacticName": "0x00000000000003e8"},
        {"Name": "conv1 + relu", "LayerType": "CaskConvolution",
         "Outputs": [{"Name": "relu", "Format/Datatype": "Thirty-two wide channel vectorized"}],
         "Weights": {"Type": "Half", "Count": 9408}, "Bias": {"Type": "Float", "Count": 64},
         "TacticName": "sm90_xmma_fprop"}], "Bindings": ["input", "features"]}"#;

    #[test]
    fn a_detailed_engine_tells_kinds_formats_and_tactics() {
        let layers = of(&serde_json::from_str(DETAILED).expect("JSON"));
        assert_eq!(layers.len(), 2);
        assert_eq!(
            (layers[1].kind.as_str(), layers[1].tactic.as_str()),
            ("CaskConvolution", "sm90_xmma_fprop")
        );
        let text = table(&layers);
        assert!(text.contains("      1 give Channel major FP16"), "{text}");
        assert_eq!(layers.iter().map(|layer| layer.weight_bytes).collect::<Vec<_>>(), [0, 19_072]);
        assert!(text.contains("sm90_xmma_fprop; weights 18.6 KiB\n"), "{text}");
        assert!(!text.contains("--detailed"), "{text}");
    }

    #[test]
    fn what_separates_the_names_of_onnx_layers_is_read() {
        let name = |text: &str| {
            parse(text).map(|value| value["Name"].as_str().map(str::to_owned)).expect("JSON")
        };
        let raw = "{\n\t\"Name\": \"[ONNX Layer: a]\u{1e}[ONNX Layer: b]\"\r\n}";
        assert!(serde_json::from_str::<Value>(raw).is_err(), "nothing to do");
        assert_eq!(name(raw).as_deref(), Some("[ONNX Layer: a]\u{1e}[ONNX Layer: b]"));
        // Quotes and backslashes are where they were.
        assert_eq!(name(r#"{"Name": "a\\"}"#).as_deref(), Some("a\\"));
        assert_eq!(name("{\"Name\": \"a\\\"\u{1}\\\\\"}").as_deref(), Some("a\"\u{1}\\"));
        assert!(parse("{\u{1e}}").is_err() && parse("{\"Name\": \"a").is_err());
    }

    #[test]
    fn a_plain_engine_tells_names_and_how_to_have_more() {
        let layers = of(&serde_json::json!({"Layers": ["conv1", "fc"], "Bindings": []}));
        assert_eq!(layers.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["conv1", "fc"]);
        assert!(table(&layers).contains("--detailed"));
        assert_eq!(of(&serde_json::json!({"Layers": 3})), []);
    }
}
