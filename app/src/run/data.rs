//! What is sent, and what is known about it: frames, labels, names of classes.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use tensorwire_configs::{Config, Mode};
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::pipeline::transmitter::FrameSource;

use super::frames::{Frames, Synthetic};
use super::plan::failure;
use crate::dataset::pcap::PcapError;
use crate::dataset::{
    self, DEFAULT_MAX_BYTES, DatasetError, ErrorClass, Labels, LabelsFrom, LoadError, LoadOptions,
};
use crate::exit::{ExitCode, Failure};
use crate::run::args::RunArgs;
use crate::talk::Talk;

/// The frames to send, the labels of their images, the names of the classes.
#[derive(Debug, Default)]
pub struct DataSet {
    /// What is sent; `None` for a receiver.
    pub frames: Option<Frames>,
    /// Class of each image of the pass.
    pub labels: Option<Labels>,
    /// Names of the classes.
    pub class_names: Vec<String>,
}

/// The capture that is sent: the command line's or the configuration's. `None`: made-up frames.
#[must_use]
pub fn capture_path(args: &RunArgs, config: &Config) -> Option<PathBuf> {
    args.dataset.clone().or_else(|| config.dataset.pcap_path.clone().map(PathBuf::from))
}

/// The file of labels that is asked for; `None`: the one beside the capture, if there is one.
fn labels_path(args: &RunArgs, config: &Config) -> Option<PathBuf> {
    // The configuration's labels are those of its own capture.
    let configured = config.dataset.labels_path.as_ref().filter(|_| args.dataset.is_none());
    args.labels.clone().or_else(|| configured.map(PathBuf::from))
}

impl DataSet {
    /// Loads or makes what `mode` asks for.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 2 for flags that mean nothing here, 3 for a capture of another geometry, 7
    /// for a file that cannot be read.
    pub fn load(args: &RunArgs, config: &Config, mode: Mode, talk: Talk) -> Result<Self, Failure> {
        let labels = labels_path(args, config);
        match (mode, capture_path(args, config)) {
            (Mode::Rx, _) => Self::received(args, labels.as_deref()),
            (_, Some(path)) => Self::of_capture(args, config, &path, labels, talk),
            (_, None) => Self::made_up(args, config, talk),
        }
    }

    /// What a receiver knows of the images that it is sent.
    fn received(args: &RunArgs, labels: Option<&Path>) -> Result<Self, Failure> {
        let known = labels.map(labels_of).transpose()?;
        let owed = args.expected_images.filter(|_| args.strict_labels);
        let given = known.as_ref().map_or(0, |(labels, _)| labels.len() as u64);
        if let Some(images) = owed.filter(|&images| given < images) {
            let few = LoadError::FewLabels { labels: given, images };
            return Err(failure(ExitCode::File, format!("--strict-labels: {few}")));
        }
        let (labels, names) = known.unzip();
        Ok(Self { frames: None, labels, class_names: names.unwrap_or_default() })
    }

    fn of_capture(
        args: &RunArgs,
        config: &Config,
        path: &Path,
        labels: Option<PathBuf>,
        talk: Talk,
    ) -> Result<Self, Failure> {
        let region = config.tx.as_ref().and_then(|tx| config.regions.get(tx.region));
        let options = LoadOptions {
            labels: labels.map_or(LabelsFrom::Beside, LabelsFrom::File),
            strict_labels: args.strict_labels,
            keep_whole_frames: args.keep_whole_frames,
            accept_trailer: config.settings.accept_trailer,
            max_frame_bytes: region.map(|region| region.buffer_bytes as usize),
            max_bytes: args.max_capture_bytes.unwrap_or(DEFAULT_MAX_BYTES),
            ..LoadOptions::new(data_flows(config)?)
        };
        let capture = dataset::load_capture(path, &config.geometry, &options)
            .map_err(|error| of_dataset(&error))?;
        for line in capture.report().notes() {
            talk.say(format_args!("{}: {line}", path.display()));
        }
        let (labels, class_names) = (capture.labels().cloned(), capture.classes().to_vec());
        Ok(Self { frames: Some(Frames::Capture(Box::new(capture))), labels, class_names })
    }

    fn made_up(args: &RunArgs, config: &Config, talk: Talk) -> Result<Self, Failure> {
        for (flag, given) in [
            ("--labels", args.labels.is_some()),
            ("--strict-labels", args.strict_labels),
            ("--keep-whole-frames", args.keep_whole_frames),
            ("--max-capture-bytes", args.max_capture_bytes.is_some()),
        ] {
            if given {
                let why = "there is no capture; name one with --dataset or dataset.pcap_path";
                return Err(failure(ExitCode::Usage, format!("{flag}: {why}")));
            }
        }
        if config.dataset.labels_path.is_some() {
            talk.say(format_args!(
                "notice: dataset.labels_path is not used, there is no capture: frames are made up"
            ));
        }
        let header = config.tx.as_ref().map(|tx| tx.header);
        let header = header
            .ok_or_else(|| failure(ExitCode::Internal, "a sender without headers was planned"))?;
        let frames = Synthetic::new(&config.geometry, &header)
            .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
        Ok(Self { frames: Some(Frames::Synthetic(frames)), ..Self::default() })
    }

    /// Images of one pass, where they are known without being told.
    #[must_use]
    pub fn images(&self, config: &Config) -> Option<u64> {
        match &self.frames {
            Some(Frames::Capture(capture)) => Some(capture.images()),
            Some(Frames::Synthetic(_)) => Some(u64::from(config.geometry.images_per_batch())),
            None => self.labels.as_ref().map(|labels| labels.len() as u64),
        }
    }

    /// Images that the frames of one pass span; `None` where none are sent.
    #[must_use]
    pub fn sent_images(&self, config: &Config) -> Option<u64> {
        match self.frames.as_ref()? {
            Frames::Capture(capture) => Some(capture.images_in_frames()),
            Frames::Synthetic(_) => Some(u64::from(config.geometry.images_per_batch())),
        }
    }

    /// Frames of one pass.
    #[must_use]
    pub fn frame_count(&self) -> Option<u64> {
        self.frames.as_ref().map(|frames| frames.frames())
    }

    /// Where the frames of a capture go, if that is elsewhere than the sender is told to send to.
    #[must_use]
    pub fn other_destination(&self, config: &Config) -> Option<[u8; 6]> {
        let Some(Frames::Capture(capture)) = &self.frames else { return None };
        let told = config.tx.as_ref()?.header.eth_dst;
        let goes = *capture.frame(0).first_chunk::<6>()?;
        (goes != told).then_some(goes)
    }
}

/// The flows whose frames are data.
fn data_flows(config: &Config) -> Result<FlowTable, Failure> {
    let Some(rx) = &config.rx else {
        // For a sender without a receiver every UDP frame of the capture is data. An empty table
        // has room for one flow.
        let mut flows = FlowTable::new();
        let _ = flows.push(&FlowMatch::any(0));
        return Ok(flows);
    };
    rx.reordered_flow_table()
        .map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))
}

/// Labels without their capture: of a receiver.
fn labels_of(path: &Path) -> Result<(Labels, Vec<String>), Failure> {
    let of = |error: &dyn Display| failure(ExitCode::File, error.to_string());
    let beside = path.with_extension("classes");
    let names = if beside.exists() { dataset::read_classes(&beside) } else { Ok(Vec::new()) };
    let names = names.map_err(|error| of(&error))?;
    let labels = dataset::read_labels(path, names.len()).map_err(|error| of(&error))?;
    Ok((labels, names))
}

/// The exit code of a data set that cannot be used, and the flag that helps where there is one.
#[must_use]
pub fn of_dataset(error: &DatasetError) -> Failure {
    let exit = match error.class() {
        ErrorClass::Usage => ExitCode::Usage,
        ErrorClass::Config => ExitCode::Config,
        ErrorClass::File => ExitCode::File,
    };
    let hint = match error {
        DatasetError::Pcap { error: PcapError::Cut { whole: 1.., .. }, .. } => {
            "; --keep-whole-frames sends these"
        }
        DatasetError::Load { error: LoadError::TooLarge { .. }, .. } => {
            "; --max-capture-bytes sets another limit"
        }
        DatasetError::Load { error: LoadError::Memory { bytes, limit }, .. } if bytes > limit => {
            "; --max-capture-bytes sets another limit"
        }
        DatasetError::Load { error: LoadError::FewLabels { .. }, .. } => " (--strict-labels)",
        _ => "",
    };
    failure(exit, format!("{error}{hint}"))
}
