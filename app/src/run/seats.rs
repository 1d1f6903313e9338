//! Which thread runs where.

use tensorwire_configs::Config;

use super::clock::Waiting;
use super::pin::{self, Pin};
use super::plan::failure;
use super::threads::Seat;
use crate::exit::{ExitCode, Failure};
use crate::talk::Talk;

/// The seats of a run.
#[derive(Clone, Debug)]
pub struct Seats {
    /// The main thread, which only waits.
    pub main: Option<Pin>,
    /// The producer, and with it the poller where the two are fused.
    pub producer: Seat,
    /// The poller, where it is a thread of its own.
    pub poller: Option<Seat>,
    /// The consumer.
    pub consumer: Seat,
    /// The sender.
    pub transmitter: Seat,
}

/// The cores that a configuration asks for, each with its key.
struct Wanted {
    main: Option<Pin>,
    poller: Option<Pin>,
    producer: Option<Pin>,
    consumer: Option<Pin>,
    sender: Option<Pin>,
}

impl Wanted {
    fn of(config: &Config, fused: bool) -> Self {
        let pin = |path: &str, core: Option<u32>| {
            core.map(|core| Pin { core, key: format!("{path}.cpu_core") })
        };
        let rx = config.rx.as_ref();
        let inference = config.inference.as_ref();
        Self {
            main: Some(Pin { core: config.master_core, key: "daqiri.cfg.master_core".to_owned() }),
            poller: rx.filter(|_| !fused).and_then(|rx| pin(&rx.queue_path, rx.poller_core)),
            producer: rx.and_then(|rx| pin(&rx.bench_path, rx.producer_core)),
            consumer: inference.and_then(|inference| pin("inference", inference.cpu_core)),
            sender: config.tx.as_ref().and_then(|tx| pin(&tx.bench_path, tx.worker_core)),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Pin> {
        [&self.main, &self.poller, &self.producer, &self.consumer, &self.sender]
            .into_iter()
            .flatten()
    }
}

impl Seats {
    /// The seats that `config` asks for, on a machine that lets this process use `cores`. A
    /// software loopback may ask for cores that are not among them: one notice names them, and
    /// their threads are not pinned.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) for a core that is missing where a NIC is real.
    pub fn new(
        config: &Config,
        fused: bool,
        no_pin: bool,
        cores: &[u32],
        talk: Talk,
    ) -> Result<Self, Failure> {
        let wanted = Wanted::of(config, fused);
        let missing: Vec<String> = wanted
            .all()
            .filter(|pin| !cores.contains(&pin.core))
            .map(|pin| format!("{}: {}", pin.key, pin.core))
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
        let there = |pin: Option<Pin>| pin.filter(|pin| !no_pin && cores.contains(&pin.core));
        let priority = config.settings.realtime_priority;
        let seat = |name, pin| Seat { name, pin: there(pin), priority, waiting };
        let sender = seat("tw-sender", wanted.sender);
        Ok(Self {
            main: there(wanted.main),
            producer: seat("tw-producer", wanted.producer),
            poller: (!fused).then(|| seat("tw-poller", wanted.poller)),
            consumer: seat("tw-consumer", wanted.consumer),
            // Who sends from the same machine must not keep the receiver from its core.
            transmitter: Seat { priority: None, ..sender },
        })
    }

    /// The seats on this machine; see [`Seats::new`].
    ///
    /// # Errors
    ///
    /// As [`Seats::new`], when the system does not say which cores there are, or when a thread that
    /// is to have a core for itself has none.
    pub fn here(config: &Config, fused: bool, no_pin: bool, talk: Talk) -> Result<Self, Failure> {
        let seats = Self::new(config, fused, no_pin, &pin::available()?, talk)?;
        if config.settings.isolated_cores {
            seats.alone_on(&pin::isolated())?;
        }
        Ok(seats)
    }

    /// Refuses a receiver whose threads are not each on one of the `isolated` cores.
    fn alone_on(&self, isolated: &[u32]) -> Result<(), Failure> {
        let seats = [Some(&self.producer), self.poller.as_ref(), Some(&self.consumer)];
        let mut wrong = Vec::new();
        for seat in seats.into_iter().flatten() {
            match &seat.pin {
                None => wrong.push(format!("thread `{}` is pinned to no core", seat.name)),
                Some(pin) if !isolated.contains(&pin.core) => {
                    wrong.push(format!("{}: core {} is not isolated", pin.key, pin.core));
                }
                Some(_) => {}
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let cores = if isolated.is_empty() {
            "no core of this machine is".to_owned()
        } else {
            format!("isolated are {isolated:?}")
        };
        let text = format!(
            "tensorwire.isolated_cores: {}; {cores}; isolcpus=, nohz_full= and rcu_nocbs= at boot \
             isolate cores",
            wrong.join(", ")
        );
        Err(failure(ExitCode::Device, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, u32); 4] = [
        ("daqiri.cfg.master_core", 8),
        ("bench_rx[0].cpu_core", 19),
        ("inference.cpu_core", 15),
        ("bench_tx[0].cpu_core", 16),
    ];

    fn config() -> Config {
        let text = tensorwire_configs::shipped("resnet50_sw_loopback.yaml").expect("shipped");
        let checked = tensorwire_configs::check_str("x", text, &Default::default());
        checked.config.expect("valid")
    }

    fn pins(seats: &Seats) -> Vec<(&str, u32)> {
        let Seats { main, producer, poller, consumer, transmitter } = seats;
        let poller = poller.as_ref().and_then(|seat| seat.pin.as_ref());
        let pins = [main.as_ref(), producer.pin.as_ref(), poller];
        let pins = pins.into_iter().chain([consumer.pin.as_ref(), transmitter.pin.as_ref()]);
        pins.flatten().map(|pin| (pin.key.as_str(), pin.core)).collect()
    }

    #[test]
    fn threads_are_pinned_under_the_keys_of_the_configuration() {
        let cores: Vec<u32> = (0..20).collect();
        let talk = Talk::new(true);
        let fused = Seats::new(&config(), true, false, &cores, talk).expect("all cores are there");
        assert_eq!(pins(&fused), ALL);
        let split = Seats::new(&config(), false, false, &cores, talk).expect("all there");
        let queue = ("daqiri.cfg.interfaces[0].rx.queues[0].cpu_core", 18);
        assert_eq!(pins(&split), [&ALL[..2], &[queue], &ALL[2..]].concat());
        let unpinned = Seats::new(&config(), false, true, &[0], talk).expect("nothing is pinned");
        assert!(pins(&unpinned).is_empty());
    }

    #[test]
    fn a_missing_core_leaves_a_loopback_unpinned_and_refuses_a_nic() {
        let talk = Talk::new(true);
        let seats = Seats::new(&config(), true, false, &[0, 15, 16], talk).expect("a loopback");
        assert_eq!(pins(&seats), ALL[2..]);
        assert_eq!(seats.producer.waiting, Waiting::Spin);
        let nic = Config { software_loopback: false, ..config() };
        let refused = Seats::new(&nic, true, false, &[0, 15, 16], talk).expect_err("no such core");
        assert_eq!(refused.exit, ExitCode::Device);
        let keys = "not those of daqiri.cfg.master_core: 8, bench_rx[0].cpu_core: 19";
        assert!(refused.reason.ends_with(keys), "{}", refused.reason);
    }

    #[test]
    fn a_core_that_is_not_isolated_is_refused_by_key() {
        let cores: Vec<u32> = (0..20).collect();
        let talk = Talk::new(true);
        let seats = Seats::new(&config(), true, false, &cores, talk).expect("all cores are there");
        assert_eq!(seats.alone_on(&[15, 19]), Ok(()));
        let refused = seats.alone_on(&[19]).expect_err("the consumer shares its core");
        assert_eq!(refused.exit, ExitCode::Device);
        let text = "tensorwire.isolated_cores: inference.cpu_core: core 15 is not isolated; \
                    isolated are [19]; ";
        assert!(refused.reason.starts_with(text), "{}", refused.reason);
        let unpinned = Seats::new(&config(), true, true, &cores, talk).expect("nothing is pinned");
        let refused = unpinned.alone_on(&[15, 19]).expect_err("no core at all");
        assert!(refused.reason.contains("thread `tw-producer` is pinned to no core"));
    }

    #[test]
    fn the_receiver_is_real_time_and_the_sender_is_not() {
        let mut config = config();
        config.settings.realtime_priority = Some(50);
        let talk = Talk::new(true);
        let seats = Seats::new(&config, false, true, &[0], talk).expect("nothing is pinned");
        let poller = seats.poller.expect("a poller");
        let receiver = [seats.producer.priority, poller.priority, seats.consumer.priority];
        assert_eq!(receiver, [Some(50); 3]);
        assert_eq!(seats.transmitter.priority, None);
    }
}
