//! `trt` and `gpu` as a user calls them, on a machine without a GPU (or with the GPU hidden).

use tensorwire_tests::{Output, Workplace};

/// A monitor of Jetson that says three lines and ends.
const TEGRASTATS: &str = "#!/bin/sh\n\
    [ \"$1\" = --interval ] || exit 9\n\
    for load in 10 20 30; do\n\
    echo \"RAM 2448/30697MB (lfb 4x4MB) EMC_FREQ 12%@2133 GR3D_FREQ $load%@[611,0] gpu@38.5C\"\n\
    done\n";

/// Runs `line` where no NVML is and a stand-in for tegrastats is on the path.
fn on_jetson(line: &str) -> Output {
    let place = Workplace::new();
    place.write("tegrastats", TEGRASTATS);
    place.shell(&format!(
        "chmod +x tegrastats && TENSORWIRE_NVML=/nowhere/nvml.so PATH=$PWD:$PATH {line}"
    ))
}

#[test]
fn gpu_reads_tegrastats_where_there_is_no_nvml() {
    let output = on_jetson("$TW gpu").expect_code(0);
    assert!(output.stdout.starts_with("GPU 0 integrated GPU\n"), "{}", output.stdout);
    assert!(output.stdout.contains("GPU 10 %, memory 12 %"), "{}", output.stdout);
    assert!(output.stdout.contains("throttled    –"), "{}", output.stdout);
    // Three readings, and then the monitor is gone.
    let output = on_jetson("$TW gpu --watch 10 --csv").expect_code(5);
    let loads: Vec<&str> =
        output.stdout.lines().skip(1).filter_map(|row| row.split(',').nth(3)).collect();
    assert_eq!(loads, ["10", "20", "30"], "{}", output.stdout);
    assert!(output.stderr.contains("tegrastats has ended"), "{}", output.stderr);
    // Who stops reading has what it wanted.
    let _ = on_jetson("$TW gpu --watch 10 --csv | head -n 1").expect_code(0);
}

#[test]
fn gpu_without_anything_to_read_is_one_line() {
    let place = Workplace::new();
    let line = "TENSORWIRE_NVML=/nowhere/nvml.so PATH= $TW gpu";
    let output = place.shell(line).expect_code(5);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("/nowhere/nvml.so") && output.stderr.contains("tegrastats"));
}

/// E11: each command that needs what is not there ends with its own code and one line.
#[test]
fn e11_commands_over_an_engine_say_what_is_missing() {
    let place = Workplace::new();
    place.write("m.engine", "no plan, and nobody looks at it");
    for command in ["inspect", "profile", "sweep"] {
        let line = format!(
            "TENSORWIRE_TENSORRT=/nowhere/libnvinfer.so CUDA_VISIBLE_DEVICES= $TW trt {command}"
        );
        let output = place.shell(&format!("{line} m.engine")).expect_code(5);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert_eq!(output.stdout, "");
        // A wrong name is told on any machine.
        let output = place.shell(&format!("{line} none.engine")).expect_code(7);
        assert!(output.stderr.contains("none.engine"), "{}", output.stderr);
    }
    let version = "TENSORWIRE_TENSORRT=/nowhere/libnvinfer.so $TW trt version --json";
    let output = place.shell(version).expect_code(5);
    assert!(output.json()["unavailable"].is_string());
}

#[test]
fn lint_and_calibrate_need_no_tensorrt() {
    let place = Workplace::new();
    let export = "export-model --arch resnet18 --weights seed:1 --output m.onnx";
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let _ = place.tensorwire(&words(export)).expect_code(0);
    let output = place.tensorwire(&words("trt lint m.onnx --json --deny-warnings")).expect_code(0);
    let found = output.json();
    let codes: Vec<&str> = found[0]["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    assert_eq!(codes, ["TL06", "TL20"]);
    place.write("broken.onnx", "no model");
    let _ = place.tensorwire(&words("trt lint broken.onnx")).expect_code(7);
    let prepare = "prepare --synthetic 5 --num-images 32 --out c.pcap";
    let _ = place.tensorwire(&words(prepare)).expect_code(0);
    let calibrate = "trt calibrate m.onnx --captures c.pcap --images 2 --output t.cache";
    let _ = place.tensorwire(&words(calibrate)).expect_code(0);
    let table = place.shell("cat t.cache").expect_code(0).stdout;
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("TRT-8600-EntropyCalibration2"));
    for line in lines {
        let (name, bits) = line.rsplit_once(": ").expect("a name and a step");
        let step = f32::from_bits(u32::from_str_radix(bits, 16).expect("hexadecimal"));
        assert!(!name.is_empty() && step > 0.0 && step.is_finite(), "{line}");
    }
    let dump = "trt dump m.onnx --capture c.pcap --layer relu layer1.0.add --cpu-only --out d";
    let _ = place.shell("mkdir d").expect_code(0);
    let output = place.tensorwire(&words(dump)).expect_code(0);
    assert!(output.stderr.contains("relu: 802816 values, at most "), "{}", output.stderr);
    let npy = std::fs::read(place.file("d/layer1.0.add.cpu.npy")).expect("written");
    assert!(npy.len() > 4 * 200_704 && npy.starts_with(b"\x93NUMPY"), "{}", npy.len());
    let output = place.tensorwire(&words(&dump.replace("relu", "rellu"))).expect_code(2);
    assert!(output.stderr.contains("'rellu'"), "{}", output.stderr);
    // Every value of the network: its input, and what each operator makes.
    assert!(table.contains("\nlayer4.1.conv2: ") && table.contains("\ninput: "), "{table}");
}
