//! Types of the elements on the wire and in the batch: whatever the kernels of a GPU convert can be
//! asked for, and the sizes follow.

use tensorwire_core::geometry::ElementType;

use crate::support::{MINI, check, the, with};

/// [`MINI`] with a reorder stage that converts `input` to `output`.
fn converting(input: ElementType, output: ElementType, order: &str) -> String {
    let payload = 192 * input.bits() / 8;
    let (frame, batch) = (64 + payload, 16 * 192 * output.bytes());
    let stage = format!(
        "          reorder_configs:\n            - {{name: a, reorder_type: gpu, memory_region: \
         out, payload_byte_offset: 64, flow_ids: [0], data_types: {{input_type: {input}, \
         output_type: {output}{order}}}, method: {{seq_packets_per_batch: {{sequence_number: \
         {{bit_offset: 128, bit_width: 8}}, packets_per_batch: 16}}}}}}\n          flows:\n"
    );
    let text = with(MINI, "          flows:\n", &stage);
    let text = with(&text, "kind: host, num_bufs: 16384, buf_size: 256", "kind: host_pinned, B");
    let text = with(&text, "kind: host, num_bufs: 16384, buf_size: 256", "kind: host_pinned, B");
    let text =
        text.replace("host_pinned, B", &format!("host_pinned, num_bufs: 16384, buf_size: {frame}"));
    let text = with(
        &text,
        "kind: host, num_bufs: 16, buf_size: 6144",
        &format!("kind: host_pinned, num_bufs: 16, buf_size: {batch}"),
    );
    let text = with(&text, "payload_size: 192", &format!("payload_size: {payload}"));
    with(
        &text,
        "out_payload_len: 192",
        &format!("out_payload_len: {payload}\n  output_type: {output}"),
    )
}

#[test]
fn every_pair_that_a_gpu_converts_can_be_asked_for() {
    use ElementType::{Bf16, Fp16, Fp32, Fp64, Int4, Int8, Int16, Int32};
    for input in [Int4, Int8, Int16, Int32] {
        for output in [Fp16, Bf16, Fp32, Fp64, Int32] {
            for (order, network) in
                [("", false), (", endianness: host", false), (", endianness: network", true)]
            {
                let text = converting(input, output, order);
                let checked = check(&text);
                let config = checked.config.as_ref();
                let config = config.unwrap_or_else(|| panic!("{text}\n{:?}", checked.diagnostics));
                let spec = config.geometry.spec();
                assert_eq!((spec.input, spec.output), (input, output));
                let rx = config.rx.as_ref().expect("a receiver");
                assert_eq!((rx.reorder_on_gpu, rx.network_order), (true, network));
                assert_eq!(config.geometry.slot_stride() as u64, 192 * u64::from(output.bytes()));
            }
        }
    }
}

#[test]
fn the_two_blocks_agree_on_what_comes_out() {
    let text = converting(ElementType::Int16, ElementType::Fp32, "");
    let differs = with(&text, "output_type: fp32}", "output_type: fp64}");
    assert!(the(&check(&differs), "TW0517").message.contains("fp32"), "{differs}");
    // Sizes are those of the type on the wire.
    let wrong = with(&text, "input_type: int16", "input_type: int8");
    assert!(check(&wrong).config.is_none());
}
