//! `reorder_type: gpu`, which is the default, where no GPU is to be seen: hidden from the program
//! on a machine that has one.

use tensorwire_tests::yaml::Yaml;
use tensorwire_tests::{Output, Workplace};

const RUN: &str = "CUDA_VISIBLE_DEVICES= $TW run c.yaml --no-pin --backend none --replay-once";

/// Runs 32 images through the shipped loopback, changed by `change`.
fn run(change: impl Fn(&str) -> String) -> Output {
    let place = Workplace::new();
    place.write("c.yaml", change(Yaml::shipped("resnet50_sw_loopback.yaml").text()));
    let prepare = ["prepare", "--synthetic", "5", "--num-images", "32", "--config", "c.yaml"];
    let _ = place.tensorwire(&prepare).expect_code(0);
    place.shell(RUN)
}

fn notices(output: &Output) -> usize {
    output.stderr.lines().filter(|line| line.contains("reordered on the CPU:")).count()
}

#[test]
fn the_cpu_reorders_and_says_so_once() {
    let output = run(str::to_owned).expect_code(0);
    assert_eq!(notices(&output), 1, "{}", output.stderr);
}

#[test]
fn who_asks_for_the_cpu_is_told_nothing() {
    let cpu = |yaml: &str| yaml.replace("  reorder_name:", "  reorder_type: cpu\n  reorder_name:");
    let output = run(cpu).expect_code(0);
    assert_eq!(notices(&output), 0, "{}", output.stderr);
}

#[test]
fn batches_in_device_memory_need_a_gpu() {
    let device = |yaml: &str| {
        let at = yaml.find("Reorder_RX_GPU").expect("the region of the batches");
        let (before, after) = yaml.split_at(at);
        format!("{before}{}", after.replacen("host_pinned", "device", 1))
    };
    let output = run(device).expect_code(5);
    let told = output.stderr.lines().filter(|line| line.contains("kind `device`")).count();
    assert_eq!(told, 1, "{}", output.stderr);
}

/// The software NIC writes with the CPU, wherever its packets are asked to lie.
#[test]
fn packets_in_device_memory_are_the_hosts_over_the_software_nic() {
    let device = |yaml: &str| {
        let at = yaml.find("Data_RX_GPU").expect("the region of the packets");
        let (before, after) = yaml.split_at(at);
        format!("{before}{}", after.replacen("host_pinned", "device", 1))
    };
    let output = run(device).expect_code(0);
    assert_eq!(notices(&output), 1, "{}", output.stderr);
}

#[test]
fn a_pool_too_small_for_a_gpu_is_no_reason_to_fail() {
    let small = |yaml: &str| {
        let at = yaml.find("Data_RX_GPU").expect("the region of the packets");
        let (before, after) = yaml.split_at(at);
        format!("{before}{}", after.replacen("51200", "24576", 1))
    };
    let output = run(small).expect_code(0);
    assert_eq!(notices(&output), 1, "{}", output.stderr);
    assert!(output.stderr.contains("has to be at least"), "{}", output.stderr);
}

#[test]
fn types_that_only_a_gpu_converts_are_refused_with_the_reason() {
    let doubles = |yaml: &str| {
        yaml.replace("output_type: \"fp16\"", "output_type: \"fp64\"")
            .replace("output_slot_stride: 2352", "output_slot_stride: 9408")
            .replace("image_out_bytes: 301056", "image_out_bytes: 1204224")
            .replace("buf_size: 9633792", "buf_size: 38535168")
    };
    let output = run(doubles).expect_code(5);
    let told = output.stderr.lines().filter(|line| line.contains("int8 to fp64")).count();
    assert_eq!(told, 1, "{}", output.stderr);
}
