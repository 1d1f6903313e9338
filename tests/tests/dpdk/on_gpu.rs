//! Packets in memory of a GPU, as far as that goes without one: what cannot be is refused in one
//! line, before anything is opened. What is done there has run over stand-ins for the NIC and the
//! GPU (`drivers/dpdk/tests/devices/ondevice.rs`).

use tensorwire_tests::Workplace;
use tensorwire_tests::with_dpdk;
use tensorwire_tests::yaml::{Small, Yaml};

/// A NIC that no machine has, with packets in memory of a GPU.
fn at_a_nic(yaml: Yaml) -> Yaml {
    yaml.set("loopback", "\"\"").set("address", "\"0000:ff:1f.7\"").set_at(
        "Data_RX_GPU",
        "kind",
        "device",
    )
}

#[test]
fn what_cannot_be_on_a_gpu_is_refused_in_one_line() {
    if !with_dpdk("dpdk: packets on a GPU") {
        return;
    }
    type Change = fn(Yaml) -> String;
    let cases: [(&str, Change, &str); 4] = [
        ("no GPU", |yaml| at_a_nic(yaml).text().to_owned(), "`device`: "),
        (
            "a CPU that reorders",
            |yaml| {
                let text = at_a_nic(yaml).text().to_owned();
                assert!(text.contains("\nreorder:\n"));
                text.replacen("\nreorder:\n", "\nreorder:\n  reorder_type: cpu\n", 1)
            },
            "`device`: `reorder_type` is `cpu`",
        ),
        (
            "a virtual device",
            |yaml| at_a_nic(yaml).set("address", "net_memif0").text().to_owned(),
            "`device`: `net_memif0` is software",
        ),
        (
            "frames to send",
            |yaml| {
                let yaml = yaml.set("loopback", "\"\"").set("address", "net_ring0");
                yaml.set_at("Data_TX", "kind", "device").text().to_owned()
            },
            "`device`: frames to send are written by the CPU",
        ),
    ];
    for (what, change, said) in cases {
        let place = Workplace::new();
        place.write("c.yaml", change(Yaml::small(Small::MINI)));
        let args = ["prepare", "--synthetic", "5", "--num-images", "8", "--config", "c.yaml"];
        let _ = place.tensorwire(&args).expect_code(0);
        let line = "CUDA_VISIBLE_DEVICES= $TW run c.yaml --no-pin --json --backend none";
        let output = place.shell(line).expect_code(5);
        let told: Vec<_> = output.stderr.lines().filter(|line| line.contains("`device`")).collect();
        assert!(matches!(&told[..], [line] if line.contains(said)), "{what}: {}", output.stderr);
        assert!(!output.stderr.contains("DPDK:"), "{what}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{what}");
    }
}
