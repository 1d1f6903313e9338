//! What was found in a capture.

use std::fmt;

use tensorwire_core::header::Reject;

/// Frames of a capture that are no data, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Records without a byte.
    pub empty: u64,
    /// Frames that end inside their headers.
    pub short: u64,
    /// Not IPv4: ARP, IPv6, LLDP, …
    pub not_ipv4: u64,
    /// IPv4, but not UDP.
    pub not_udp: u64,
    /// UDP, but of no flow of ours.
    pub other_flow: u64,
    /// With a VLAN tag.
    pub vlan: u64,
    /// Fragments of an IPv4 datagram.
    pub fragment: u64,
    /// An IPv4 header of another length, or nonsense.
    pub ihl: u64,
}

impl Skipped {
    /// The reasons with their counts, those that occurred.
    fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("empty", self.empty),
            ("short", self.short),
            ("not IPv4", self.not_ipv4),
            ("not UDP", self.not_udp),
            ("other flow", self.other_flow),
            ("VLAN tag", self.vlan),
            ("fragment", self.fragment),
            ("IPv4 header length", self.ihl),
        ]
        .into_iter()
        .filter(|&(_, count)| count > 0)
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reasons().map(|(_, count)| count).sum()
    }

    pub(super) const fn count(&mut self, reject: Reject) {
        *match reject {
            Reject::Vlan => &mut self.vlan,
            Reject::NotIpv4 => &mut self.not_ipv4,
            Reject::Ihl => &mut self.ihl,
            Reject::Fragment => &mut self.fragment,
            Reject::NotUdp => &mut self.not_udp,
            // A checksum is not looked at here.
            _ => &mut self.short,
        } += 1;
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (reason, count)) in self.reasons().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{reason} {count}")?;
        }
        Ok(())
    }
}

/// What was found in a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Records of the file.
    pub records: u64,
    /// Records that are no data.
    pub skipped: Skipped,
    /// Data frames shorter than a packet of the geometry.
    pub short: u64,
    /// Data frames longer than a packet of the geometry.
    pub long: u64,
    /// Records that stored more bytes than the frame had; they were trimmed.
    pub trimmed: u64,
    /// Data frames whose time stamp is invalid or before the one of the frame before: no gap.
    pub bad_times: u64,
    /// Where the file is cut short, in bytes; only with
    /// [`keep_whole_frames`](super::LoadOptions::keep_whole_frames).
    pub cut_at: Option<u64>,
    /// Images without a label; 0 when there are no labels at all.
    pub unlabelled: u64,
}

impl LoadReport {
    /// What a user should know, one line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.skipped.total() > 0 {
            let (count, of) = (self.skipped.total(), self.records);
            notes.push(format!("{count} of {of} frames are no data: {}", self.skipped));
        }
        for (count, what) in [
            (self.short, "data frames are shorter than a packet of the geometry"),
            (self.long, "data frames are longer than a packet of the geometry"),
            (self.trimmed, "records stored more bytes than the frame had; they were left out"),
            (self.bad_times, "time stamps are invalid or go back; they count as no gap"),
            (self.unlabelled, "images have no label; they are left out of the class statistics"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        if let Some(at) = self.cut_at {
            notes.push(format!("the file is cut short at byte {at}; its whole frames are used"));
        }
        notes
    }
}
