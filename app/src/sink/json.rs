//! The summary for programs: one JSON object.

use super::summary::Summary;

impl Summary {
    /// The summary as one JSON object on one line, with its line end. The keys come in a fixed
    /// order; `docs/summary.md` describes each.
    ///
    /// # Errors
    ///
    /// What the serialiser says. The summary holds nothing that it could refuse.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
