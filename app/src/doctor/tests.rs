//! Machines made of files: each fault alone is one problem, with its way out.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use tensorwire_configs::{Options, check_str, shipped};

use super::*;
use crate::run::pin::list;

/// A machine made of files.
struct Fake {
    root: TempDir,
}

const NIC: &str = "sys/bus/pci/devices/0000:01:00.0";
const CORES: [u32; 4] = [8, 15, 18, 19];

impl Fake {
    /// A Spark on which `resnet50_rx_spark_xhost.yaml` would run.
    fn spark() -> Self {
        let fake = Self { root: TempDir::new().expect("a folder") };
        fake.file("sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n");
        fake.file("proc/meminfo", "MemTotal: 131072000 kB\nMemAvailable: 100000000 kB\n");
        fake.file(
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        );
        fake.file("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        fake.file("proc/mounts", "none /dev/hugepages hugetlbfs rw 0 0\n");
        fake.pages(2048, 64, 64);
        fake.file("sys/devices/system/cpu/online", "0-19\n");
        fake.file("sys/devices/system/cpu/isolated", "15-19\n");
        for core in 0..20 {
            fake.file(
                &format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"),
                "performance\n",
            );
            let strong = CORES.contains(&core);
            fake.file(
                &format!("sys/devices/system/cpu/cpu{core}/cpu_capacity"),
                if strong { "1024" } else { "718" },
            );
        }
        fake.link(&format!("{NIC}/driver"), "sys/bus/pci/drivers/mlx5_core");
        fake.file(&format!("{NIC}/infiniband/mlx5_0/fw_ver"), "28.45.4028\n");
        fake.file(&format!("{NIC}/numa_node"), "-1\n");
        fake.file(&format!("{NIC}/net/enp1s0f0np0/mtu"), "9000");
        fake.file("dev/infiniband/uverbs0", "");
        fake.interface("enp1s0f0np0", "up", "200000", "9000");
        fake
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let _ = fs::remove_file(&path);
        symlink(Path::new("/").join(to), path).expect("a link");
    }

    fn remove(&self, path: &str) {
        let path = self.root.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
            .expect("there");
    }

    fn interface(&self, name: &str, state: &str, mbps: &str, mtu: &str) {
        let folder = format!("sys/class/net/{name}");
        self.file(&format!("{folder}/operstate"), state);
        self.file(&format!("{folder}/speed"), mbps);
        self.file(&format!("{folder}/mtu"), mtu);
        self.link(&format!("{folder}/device/driver"), "sys/bus/pci/drivers/mlx5_core");
    }

    fn pages(&self, kb: u64, total: u64, free: u64) {
        let folder = format!("sys/kernel/mm/hugepages/hugepages-{kb}kB");
        self.file(&format!("{folder}/nr_hugepages"), &total.to_string());
        self.file(&format!("{folder}/free_hugepages"), &free.to_string());
    }

    fn machine(&self) -> Machine {
        Machine::at(self.root.path())
    }

    fn problems(&self, yaml: &str) -> Vec<String> {
        let config = config(yaml);
        let findings = examine(&self.machine(), Some(&config));
        let problem = |finding: &&Finding| finding.state == State::Problem;
        findings.iter().filter(problem).map(ToString::to_string).collect()
    }
}

fn config(yaml: &str) -> Config {
    let checked = check_str("test.yaml", yaml, &Options::default());
    checked.config.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
}

fn spark_yaml() -> &'static str {
    shipped("resnet50_rx_spark_xhost.yaml").expect("shipped")
}

#[test]
fn on_a_machine_as_it_should_be_everything_is_in_order() {
    let fake = Fake::spark();
    let findings = examine(&fake.machine(), Some(&config(spark_yaml())));
    let (good, other): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.state == State::Ok);
    let other: Vec<_> = other.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(other, ["GPU"], "which a machine of files has not");
    let subjects: Vec<_> = good.iter().map(|finding| finding.subject.as_str()).collect();
    for subject in [
        "machine",
        "huge pages",
        "memory",
        "locked memory",
        "0000:01:00.0",
        "enp1s0f0np0",
        "core 18",
    ] {
        assert!(subjects.contains(&subject), "{subject} in {subjects:?}");
    }
    let nic = good.iter().find(|finding| finding.subject == "0000:01:00.0").expect("the NIC");
    assert_eq!(nic.found, "mlx5_core, firmware 28.45.4028");
    let link = good.iter().find(|finding| finding.subject == "enp1s0f0np0").expect("the link");
    assert_eq!(link.found, "link up, 200 Gb/s, MTU 9000");
}

/// What is done to the machine, and the words of the one problem that follows.
type Fault = (fn(&Fake), &'static [&'static str]);

#[test]
fn each_fault_alone_is_one_problem_with_its_way_out() {
    let faults: &[Fault] = &[
        (
            |m| m.interface("enp1s0f0np0", "down", "-1", "9000"),
            &["enp1s0f0np0", "link down", "ip link set enp1s0f0np0 up"],
        ),
        (
            |m| m.interface("enp1s0f0np0", "up", "200000", "1200"),
            &["MTU 1200", "frames need 1226", "mtu 1226"],
        ),
        (
            |m| m.link(&format!("{NIC}/driver"), "sys/bus/pci/drivers/gone"),
            &["0000:01:00.0", "gone, firmware", "keeps it to the kernel", "dpdk-devbind.py"],
        ),
        (|m| m.remove(&format!("{NIC}/driver")), &["0000:01:00.0", "no driver has it"]),
        (|m| m.remove(NIC), &["0000:01:00.0", "no such device", "lspci"]),
        (|m| m.remove("dev/infiniband"), &["uverbs", "rdma-core"]),
        (
            |m| m.file("sys/devices/system/cpu/online", "0-17,19"),
            &["core 18", "not online", "the poller"],
        ),
        (
            |m| m.file("proc/self/status", "CapEff:\t000001ffffffdfff\n"),
            &["CAP_NET_RAW", "missing", "cap_net_raw+ep"],
        ),
        (
            |m| m.file("proc/meminfo", "MemAvailable: 1000 kB\n"),
            &["memory", "1000 KiB available", "need"],
        ),
    ];
    for (number, (fault, words)) in faults.iter().enumerate() {
        let fake = Fake::spark();
        fault(&fake);
        let mut problems = fake.problems(spark_yaml());
        // A driver that keeps the device also wants what hands it over, which Spark has not.
        if number == 2 || number == 3 {
            problems.retain(|line| !line.contains("IOMMU") && !line.contains("vfio   "));
        }
        assert_eq!(problems.len(), 1, "fault {number}: {problems:#?}");
        for word in *words {
            assert!(problems[0].contains(word), "fault {number}: `{word}` in {}", problems[0]);
        }
    }
}

#[test]
fn a_limit_on_locked_memory_counts_only_without_the_capability() {
    let fake = Fake::spark();
    fake.file(
        "proc/self/limits",
        "Max locked memory         65536                65536                bytes\n",
    );
    assert_eq!(fake.problems(spark_yaml()), [""; 0]);
    fake.file("proc/self/status", "CapEff:\t000001ffffffbfff\n");
    let problems = fake.problems(spark_yaml());
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems[0].contains("limit 64 KiB") && problems[0].contains("LimitMEMLOCK"),
        "{}",
        problems[0]
    );
    assert!(problems[1].contains("CAP_IPC_LOCK"), "{}", problems[1]);
}

#[test]
fn huge_pages_are_counted_against_the_regions() {
    let yaml = spark_yaml().replacen("host_pinned", "huge", 1);
    let fake = Fake::spark();
    // 51,200 buffers of 1240 bytes are 63,488,000: 31 pages of 2 MiB.
    fake.pages(2048, 64, 31);
    assert_eq!(fake.problems(&yaml), [""; 0]);
    fake.pages(2048, 64, 29);
    let problems = fake.problems(&yaml);
    assert!(problems.len() == 1 && problems[0].contains("2 more of 2 MiB"), "{problems:#?}");
    fake.pages(2048, 64, 31);
    fake.file("proc/mounts", "proc /proc proc rw 0 0\n");
    let problems = fake.problems(&yaml);
    assert!(problems.len() == 1 && problems[0].contains("not mounted"), "{problems:#?}");
}

#[test]
fn a_device_region_cannot_be_on_spark_and_is_the_best_with_a_card() {
    let yaml = spark_yaml().replacen("host_pinned", "device", 1);
    let fake = Fake::spark();
    let problems = fake.problems(&yaml);
    assert!(
        problems
            .iter()
            .any(|line| line.contains("share one memory") && line.contains("kind: host_pinned")),
        "{problems:#?}"
    );
    fake.file("sys/class/dmi/id/product_name", "");
    fake.file("proc/device-tree/model", "NVIDIA IGX Orin Developer Kit\0");
    fake.file("sys/bus/pci/devices/0005:09:00.0/vendor", "0x10de\n");
    fake.file("sys/bus/pci/devices/0005:09:00.0/class", "0x030000\n");
    assert_eq!(fake.problems(&yaml), [""; 0]);
    let slower = examine(&fake.machine(), Some(&config(spark_yaml())));
    let slower = slower.iter().find(|finding| finding.fix.as_deref() == Some("kind: device"));
    assert!(slower.is_some_and(|finding| finding.state == State::Note), "{slower:?}");
}

#[test]
fn what_costs_speed_is_a_note() {
    let fake = Fake::spark();
    fake.file("sys/devices/system/cpu/isolated", "\n");
    fake.file("sys/devices/system/cpu/cpu19/cpufreq/scaling_governor", "powersave");
    fake.file("sys/devices/system/cpu/cpu18/cpu_capacity", "718");
    fake.file(&format!("{NIC}/numa_node"), "0");
    fake.file("sys/devices/system/node/node0/cpulist", "0-17");
    assert_eq!(fake.problems(spark_yaml()), [""; 0]);
    let findings = examine(&fake.machine(), Some(&config(spark_yaml())));
    let all: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    for line in [
        "core 18          not isolated, the poller",
        "isolcpus=18",
        "core 19          governor powersave",
        "core 18          a slower core, 718 of 1024",
        "core 18          not on NUMA node 0, where 0000:01:00.0 is",
    ] {
        assert!(all.contains(line), "{line}\n{all}");
    }
    assert!(!all.contains("core 8           not isolated"), "the main thread may share\n{all}");
}

#[test]
fn without_a_configuration_nothing_is_a_problem_even_on_an_empty_machine() {
    let empty = Fake { root: TempDir::new().expect("a folder") };
    let findings = examine(&empty.machine(), None);
    assert!(findings.iter().all(|finding| finding.state != State::Problem), "{findings:#?}");
    assert!(
        findings
            .iter()
            .any(|finding| finding.subject == "NIC" && finding.found.contains("there is none"))
    );
    let spark = examine(&Fake::spark().machine(), None);
    assert!(
        spark.iter().any(|finding| finding.found == "mlx5_core, link up, 200 Gb/s, MTU 9000"),
        "{spark:#?}"
    );
}

#[test]
fn an_address_is_looked_up_among_those_of_the_machine() {
    let fake = Fake::spark();
    let machine = fake.machine();
    let ip = |last| IpAddr::from(Ipv4Addr::new(10, 77, 0, last));
    assert_eq!(machine.owns(ip(2)), None);
    let leaf = |ip, kind| format!("     |-- {ip}\n        /32 {kind}\n");
    let leaves = leaf("10.77.0.2", "host LOCAL") + &leaf("10.77.0.255", "link BROADCAST");
    fake.file("proc/net/fib_trie", &format!("Local:\n  +-- 10.77.0.0/24 2 0 2\n{leaves}"));
    assert_eq!(
        (machine.owns(ip(2)), machine.owns(ip(255)), machine.owns(ip(3))),
        (Some(true), Some(false), Some(false))
    );
    let yaml = shipped("resnet50_rx_socket.yaml").expect("shipped");
    assert!(!fake.problems(yaml).iter().any(|line| line.contains("10.77.0.2")));
    fake.file("proc/net/fib_trie", "Local:\n");
    let problems = fake.problems(yaml);
    assert!(
        problems.iter().any(|line| line.contains("10.77.0.2") && line.contains("ip addr add")),
        "{problems:#?}"
    );
}

#[test]
fn a_virtual_device_is_there_and_the_interface_under_it_is_looked_at() {
    let device = "net_af_packet0,iface=twx0";
    let yaml = spark_yaml().replacen("0000:01:00.0", device, 1);
    let fake = Fake::spark();
    let problems = fake.problems(&yaml);
    assert!(problems.len() == 1 && problems[0].contains("twx0"), "{problems:#?}");
    fake.interface("twx0", "up", "10000", "9000");
    assert_eq!(fake.problems(&yaml), [""; 0]);
}

#[test]
fn lists_of_the_kernel_are_read_and_others_are_not_believed() {
    assert_eq!(list("0-2,8, 10-11\n"), Some(vec![0, 1, 2, 8, 10, 11]));
    assert_eq!(list(""), Some(vec![]));
    assert_eq!(list("0-99999999"), None);
    assert_eq!(list("zebra"), None);
}

#[test]
fn amounts_are_said_in_a_unit_that_fits() {
    let all = [0, 1, 4096, 2 << 20, 3 << 30, (2 << 20) + 1].map(memory::human);
    assert_eq!(all, ["0", "1 KiB", "4 KiB", "2 MiB", "3 GiB", "3 MiB"]);
}
