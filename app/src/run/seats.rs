//! Which thread runs where.

use tensorwire_configs::Config;

use super::clock::Waiting;
use super::pin::{self, Pin};
use super::plan::failure;
use super::threads::Seat;
use crate::exit::{ExitCode, Failure};
use crate::talk::Talk;

/// The seats of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    /// The producer, and with it the poller where the two are fused.
    pub producer: Seat,
    /// The poller, where it is a thread of its own.
    pub poller: Option<Seat>,
    /// The consumer.
    pub consumer: Seat,
    /// The sender.
    pub transmitter: Seat,
}

impl Seats {
    /// The seats that `config` asks for. A software loopback may ask for cores that this machine
    /// does not have: one notice names them, and their threads are not pinned.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) for a core that is missing where a NIC is real.
    pub fn new(config: &Config, fused: bool, no_pin: bool, talk: Talk) -> Result<Self, Failure> {
        let cores = pin::available()?;
        let rx = config.rx.as_ref();
        let poller = rx.and_then(|rx| rx.poller_core).map(|core| ("rx.queues[].cpu_core", core));
        let producer = rx.and_then(|rx| rx.producer_core).map(|core| ("bench_rx[].cpu_core", core));
        let consumer = config.inference.as_ref().and_then(|inference| inference.cpu_core);
        let consumer = consumer.map(|core| ("inference.cpu_core", core));
        let sender = config.tx.as_ref().and_then(|tx| tx.worker_core);
        let sender = sender.map(|core| ("bench_tx[].cpu_core", core));
        let wanted = [poller.filter(|_| !fused), producer, consumer, sender];
        let missing: Vec<String> = wanted
            .iter()
            .flatten()
            .filter(|(_, core)| !cores.contains(core))
            .map(|(key, core)| format!("{key}: {core}"))
            .collect();
        if !missing.is_empty() && !no_pin {
            let text = format!(
                "this machine has {} cores for this process, not those of {}",
                cores.len(),
                missing.join(", ")
            );
            if !config.software_loopback {
                return Err(failure(ExitCode::Device, text));
            }
            talk.say(format_args!("notice: {text}; these threads are not pinned"));
        }
        let threads = if fused { 3 } else { 4 };
        let waiting = Waiting::for_machine(cores.len(), threads);
        let pin = |wanted: Option<(&'static str, u32)>| {
            wanted
                .filter(|(_, core)| !no_pin && cores.contains(core))
                .map(|(key, core)| Pin { core, key })
        };
        let seat = |name, wanted| Seat { name, pin: pin(wanted), waiting };
        Ok(Self {
            producer: seat("tw-producer", producer),
            poller: (!fused).then(|| seat("tw-poller", poller)),
            consumer: seat("tw-consumer", consumer),
            transmitter: seat("tw-sender", sender),
        })
    }
}
