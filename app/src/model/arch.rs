//! The ResNet family as torchvision defines it: layers, names, shapes.
//!
//! Source: He et al., "Deep Residual Learning for Image Recognition" (2015), table 1, with the
//! stride of a bottleneck in its 3×3 convolution ("v1.5"), which is what torchvision's weights are
//! trained for.

use std::fmt;
use std::str::FromStr;

/// A network of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 18 layers, basic blocks.
    Resnet18,
    /// 34 layers, basic blocks.
    Resnet34,
    /// 50 layers, bottleneck blocks.
    Resnet50,
    /// 101 layers, bottleneck blocks.
    Resnet101,
    /// 152 layers, bottleneck blocks.
    Resnet152,
}

impl Arch {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Resnet18, Self::Resnet34, Self::Resnet50, Self::Resnet101, Self::Resnet152];

    /// Name, as torchvision writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resnet18 => "resnet18",
            Self::Resnet34 => "resnet34",
            Self::Resnet50 => "resnet50",
            Self::Resnet101 => "resnet101",
            Self::Resnet152 => "resnet152",
        }
    }

    /// Blocks of each of the four stages.
    const fn stages(self) -> [usize; 4] {
        match self {
            Self::Resnet18 => [2, 2, 2, 2],
            Self::Resnet34 | Self::Resnet50 => [3, 4, 6, 3],
            Self::Resnet101 => [3, 4, 23, 3],
            Self::Resnet152 => [3, 8, 36, 3],
        }
    }

    const fn bottleneck(self) -> bool {
        matches!(self, Self::Resnet50 | Self::Resnet101 | Self::Resnet152)
    }

    /// Length of a feature vector: 512 for basic blocks, 2048 for bottlenecks.
    #[must_use]
    pub const fn feature_dim(self) -> usize {
        if self.bottleneck() { 2048 } else { 512 }
    }

    /// The layers of the network.
    #[must_use]
    pub fn network(self) -> Network {
        let stem = Conv::new("conv1", "bn1", [3, 64], 7, 2);
        let mut blocks = Vec::new();
        let mut channels = 64;
        for (stage, count) in self.stages().into_iter().enumerate() {
            for index in 0..count {
                let name = format!("layer{}.{index}", stage + 1);
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                let block = self.block(name, channels, 64 << stage, stride);
                channels = block.channels();
                blocks.push(block);
            }
        }
        Network { stem, blocks, feature_dim: self.feature_dim() }
    }

    fn block(self, name: String, inputs: usize, width: usize, stride: usize) -> Block {
        let conv = |i: usize, channels: [usize; 2], kernel: usize, stride: usize| {
            Conv::new(
                &format!("{name}.conv{i}"),
                &format!("{name}.bn{i}"),
                channels,
                kernel,
                stride,
            )
        };
        let (outputs, convs) = if self.bottleneck() {
            let outputs = width * 4;
            let convs = vec![
                conv(1, [inputs, width], 1, 1),
                conv(2, [width, width], 3, stride),
                conv(3, [width, outputs], 1, 1),
            ];
            (outputs, convs)
        } else {
            (width, vec![conv(1, [inputs, width], 3, stride), conv(2, [width, width], 3, 1)])
        };
        // The shortcut is the identity where nothing changes, else a strided 1×1 convolution.
        let downsample = (stride != 1 || inputs != outputs).then(|| {
            let (conv, norm) = (format!("{name}.downsample.0"), format!("{name}.downsample.1"));
            Conv::new(&conv, &norm, [inputs, outputs], 1, stride)
        });
        Block { name, convs, downsample }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = super::options::UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|arch| arch.name() == text);
        found.ok_or_else(|| super::options::UnknownWord {
            given: text.into(),
            allowed: "resnet18, resnet34, resnet50, resnet101 or resnet152",
        })
    }
}

/// A convolution without bias and the norm behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Name of the convolution: its weights are `NAME.weight`.
    pub name: String,
    /// Name of the norm: `NAME.{weight,bias,running_mean,running_var}`.
    pub norm: String,
    /// Channels that go in.
    pub inputs: usize,
    /// Channels that come out.
    pub outputs: usize,
    /// Rows and columns of the kernel.
    pub kernel: usize,
    /// Stride, both ways.
    pub stride: usize,
}

impl Conv {
    fn new(
        name: &str,
        norm: &str,
        [inputs, outputs]: [usize; 2],
        kernel: usize,
        stride: usize,
    ) -> Self {
        Self { name: name.into(), norm: norm.into(), inputs, outputs, kernel, stride }
    }

    /// Zeros added on each side: what keeps the size at stride 1.
    #[must_use]
    pub const fn padding(&self) -> usize {
        self.kernel / 2
    }

    /// Rows (or columns) of the result for `size` rows (or columns) of input.
    #[must_use]
    pub const fn output_size(&self, size: usize) -> usize {
        (size + 2 * self.padding() - self.kernel) / self.stride + 1
    }
}

/// A residual block: `relu(convs(x) + shortcut(x))`, a relu behind each convolution but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Name, for example `layer1.0`.
    pub name: String,
    /// The convolutions, two or three.
    pub convs: Vec<Conv>,
    /// The shortcut, where it is not the identity.
    pub downsample: Option<Conv>,
}

impl Block {
    fn channels(&self) -> usize {
        self.convs.last().map_or(0, |conv| conv.outputs)
    }
}

/// A network: stem, 3×3 max pooling with stride 2, blocks, mean over all positions, a linear head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first convolution.
    pub stem: Conv,
    /// The residual blocks.
    pub blocks: Vec<Block>,
    /// Length of a feature vector.
    pub feature_dim: usize,
}

/// Added to the variance of a norm before the root is taken.
pub const NORM_EPSILON: f32 = 1e-5;

impl Network {
    /// All convolutions, in the order they run.
    pub fn convs(&self) -> impl Iterator<Item = &Conv> {
        let inner = self.blocks.iter().flat_map(|b| b.convs.iter().chain(&b.downsample));
        std::iter::once(&self.stem).chain(inner)
    }

    /// Name and shape of every tensor of the trunk: all weights but the head's.
    #[must_use]
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors = Vec::new();
        for conv in self.convs() {
            let shape = vec![conv.outputs, conv.inputs, conv.kernel, conv.kernel];
            tensors.push((format!("{}.weight", conv.name), shape));
            for part in ["weight", "bias", "running_mean", "running_var"] {
                tensors.push((format!("{}.{part}", conv.norm), vec![conv.outputs]));
            }
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplications of one image of 224×224, the head with 1000 classes included.
    fn multiplications(network: &Network) -> usize {
        let cost = |conv: &Conv, size: usize| {
            let out = conv.output_size(size);
            conv.outputs * conv.inputs * conv.kernel * conv.kernel * out * out
        };
        let mut total = cost(&network.stem, 224);
        let mut size = 56;
        for block in &network.blocks {
            let mut inner = size;
            for conv in &block.convs {
                total += cost(conv, inner);
                inner = conv.output_size(inner);
            }
            total += block.downsample.as_ref().map_or(0, |conv| cost(conv, size));
            size = inner;
        }
        assert_eq!(size, 7);
        total + network.feature_dim * 1000
    }

    /// Parameter counts and GFLOPs as torchvision documents them for its weights: the first holds
    /// only with the right shapes, the second only with the right strides as well.
    #[test]
    fn sizes_and_costs_are_those_that_torchvision_documents() {
        let documented = [
            (Arch::Resnet18, 11_689_512, 1.81),
            (Arch::Resnet34, 21_797_672, 3.66),
            (Arch::Resnet50, 25_557_032, 4.09),
            (Arch::Resnet101, 44_549_160, 7.80),
            (Arch::Resnet152, 60_192_808, 11.51),
        ];
        for (arch, parameters, gflops) in documented {
            let network = arch.network();
            let learned: usize = network
                .tensors()
                .iter()
                .filter(|(name, _)| !name.contains("running"))
                .map(|(_, shape)| shape.iter().product::<usize>())
                .sum();
            assert_eq!(learned + (network.feature_dim + 1) * 1000, parameters, "{arch}");
            #[expect(clippy::cast_precision_loss, reason = "compared to three digits")]
            let cost = multiplications(&network) as f64 / 1e9;
            assert!((cost - gflops).abs() < 0.006, "{arch}: {cost} against {gflops}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse::<Arch>().expect("its own name"), arch);
        }
        let error = "resnet51".parse::<Arch>().expect_err("no such network").to_string();
        assert!(error.contains("'resnet51'") && error.contains("resnet152"), "{error}");
    }
}
