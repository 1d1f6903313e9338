//! Configurations for tests: a shipped one with other values in it.

use std::fs;

use crate::config;

/// The text of a configuration.
#[derive(Clone, Debug)]
pub struct Yaml(String);

/// Image of the small geometries: 3 × 16 × 16 pixels, 768 bytes on the wire.
const SIDE: u32 = 16;

/// What a small geometry is made of: its images are 3 × 16 × 16 pixels.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    /// Packets of an image.
    pub packets_per_image: u32,
    /// Images of a batch.
    pub images_per_batch: u32,
    /// Bits of the sequence number.
    pub seq_bit_width: u32,
}

impl Small {
    /// 16 packets of 4 images in a batch, 16 batches in the number space.
    pub const MINI: Self = Self { packets_per_image: 4, images_per_batch: 4, seq_bit_width: 8 };

    /// Packets of a batch.
    #[must_use]
    pub const fn packets_per_batch(&self) -> u32 {
        self.packets_per_image * self.images_per_batch
    }
}

impl Yaml {
    /// A configuration that ships with the project.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    #[must_use]
    pub fn shipped(name: &str) -> Self {
        Self(fs::read_to_string(config(name)).expect("a shipped configuration"))
    }

    /// The shipped software loopback in a small geometry.
    #[must_use]
    pub fn small(of: Small) -> Self {
        let elements = 3 * SIDE * SIDE;
        let payload = elements / of.packets_per_image;
        Self::shipped("resnet50_sw_loopback.yaml")
            .set_at("Data_RX_GPU", "buf_size", 64 + payload)
            .set_at("Reorder_RX_GPU", "buf_size", of.images_per_batch * elements * 2)
            .set("payload_size", payload)
            .set("out_payload_len", payload)
            .set("packets_per_image", of.packets_per_image)
            .set("images_per_batch", of.images_per_batch)
            .set("seq_bit_width", of.seq_bit_width)
            .set("output_slot_stride", payload * 2)
            .set("image_out_bytes", elements * 2)
            .set("height", SIDE)
            .set("width", SIDE)
    }

    /// With another value for a key that stands once in the file.
    ///
    /// # Panics
    ///
    /// If it stands there more than once, or not at all.
    #[must_use]
    #[track_caller]
    pub fn set(self, key: &str, value: impl ToString) -> Self {
        let places = self.0.lines().filter(|line| is(line, key)).count();
        assert_eq!(places, 1, "`{key}` does not stand there once");
        self.set_at("", key, value)
    }

    /// With another value for the first `key` behind the first line that contains `anchor`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn set_at(self, anchor: &str, key: &str, value: impl ToString) -> Self {
        let mut text = String::with_capacity(self.0.len());
        let (mut seen, mut done) = (false, false);
        for line in self.0.lines() {
            seen |= line.contains(anchor);
            if seen && !done && is(line, key) {
                let start = line.find(key).expect("it is that line");
                text += &format!("{}{key}: {}\n", &line[..start], value.to_string());
                done = true;
            } else {
                text += line;
                text.push('\n');
            }
        }
        assert!(done, "no `{key}` behind `{anchor}`");
        Self(text)
    }

    /// Without the line of a key that stands once in the file.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    #[track_caller]
    pub fn without(self, key: &str) -> Self {
        let places = self.0.lines().filter(|line| is(line, key)).count();
        assert_eq!(places, 1, "`{key}` does not stand there once");
        Self(self.0.lines().filter(|line| !is(line, key)).map(|line| format!("{line}\n")).collect())
    }

    /// With an entry `key: value` at top level.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.0 += &format!("\n{key}: {value}\n");
        self
    }

    /// Without a data set: frames are made up.
    #[must_use]
    pub fn synthetic(self) -> Self {
        let text = self.without("pcap_path").without("labels_path").0;
        Self(text.replace("\ndataset:\n", "\ndataset: {}\n"))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl AsRef<[u8]> for Yaml {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Whether `key` stands on a line.
fn is(line: &str, key: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("- ").unwrap_or(line);
    line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
}
