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
        let Layer { name, kind, format, tactic } = layer;
        if kind.is_empty() {
            text += &format!("  {name}\n");
            continue;
        }
        text += &format!("  {kind:<18} {name}\n    {format}; {tactic}\n");
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
        assert!(!text.contains("--detailed"), "{text}");
    }

    #[test]
    fn a_plain_engine_tells_names_and_how_to_have_more() {
        let layers = of(&serde_json::json!({"Layers": ["conv1", "fc"], "Bindings": []}));
        assert_eq!(layers.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["conv1", "fc"]);
        assert!(table(&layers).contains("--detailed"));
        assert_eq!(of(&serde_json::json!({"Layers": 3})), []);
    }
}
