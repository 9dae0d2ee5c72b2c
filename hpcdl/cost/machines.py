"""The machines of published results, as values: operations and bytes per second, memory, links.

Peaks come from data sheets. `Machine.usual` is the part of them that programs reach, by one constant per device:
`matrix`, or `vector` without tensor cores. `Machine.reaching` sets other shares. A link's bytes per second count one
way. Data sheets do not give seconds per message: `RDMA` and `TCP` are the fitted alphas of an all-reduce over 8 workers
in Shi et al. 2019 (MG-WFBP), per step of its ring.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hpcdl.cost.kernels import Kernels
from hpcdl.cost.roofline import Device
from hpcdl.cost.topology import Link, Network, Nodes, Torus

GIGABIT = 1e9 / 8  # bytes per second
STEPS = 2 * (8 - 1)  # consecutive messages in a ring of 8, each an eighth of the bytes
INFINIBAND_56, ETHERNET_10_ALPHA = Link(9.7537e-5, 3.0568e-10), 5.2303e-4  # MG-WFBP's fits, 8 workers
RDMA, TCP = INFINIBAND_56.alpha / STEPS, ETHERNET_10_ALPHA / STEPS
# The share of the line rate that the fit over InfiniBand reaches: 82 %.
FITTED_SHARE = STEPS / 8 / (INFINIBAND_56.beta * 56 * GIGABIT)
MEMORY = 0.7
# Host seconds per kernel: eager frameworks take 5 to 25 µs (jiahuanglin.xyz, lesson 18); a virtual machine with an H200
# took 28 to 38 µs (`benchmarks card`).
LAUNCH, HOSTS = 10e-6, (5e-6, 40e-6)  # the usual one, and the fastest and slowest hosts
GAP = 2e-6  # seconds to start and end a kernel, assumed


# The share of the peak that large matrix products reach, one constant per device, and the share of the memory's rate
# that other kernels reach; all fitted together to the runs of `hpcdl.cost.published.runs`. A device without a public
# run gets four fifths.
A100_MATRIX = 0.74
VECTOR = 0.6  # in fp32, fitted to the P100 and the P40, and used for other GPUs
K80_VECTOR = 0.28  # its clock rarely reaches the boost that its peak assumes
V100_MATRIX = 0.48
H100_MATRIX = 0.46  # held to 500 W
# With its full 700 W: power grows with the cube of the clock, because voltage grows with it. No public run confirms
# this; models of 0.1 to 2.7 B parameters on one H200 took 0.87 to 1.01 of what it predicts (`benchmarks card`).
H100_700_W = round(H100_MATRIX * (700 / 500) ** (1 / 3), 3)


class Machine(NamedTuple):
    """An accelerator and its network. `peaks`: operations per second by precision; `bandwidth` and `memory` in bytes.

    `share` of the peak is reached by matrix products: large ones usually reach `matrix` of it, or `vector` of fp32's
    peak, which has no tensor cores. `processors` compute one tile each; `seen` says whether bandwidth and links are the
    ones a program reaches. Its host needs `launch` seconds for each kernel.
    """

    name: str
    peaks: Mapping[str, float]
    bandwidth: float
    memory: float
    network: Network
    source: str
    share: float = 1.0
    processors: int = 1
    matrix: float = 0.8
    vector: float = VECTOR
    seen: bool = False
    launch: float = LAUNCH

    def device(self, precision: str = "fp32") -> Device:
        """Return its roofline; raise ValueError for a precision without a peak."""
        if precision not in self.peaks:
            raise ValueError(f"precision is {precision!r}; {self.name} has peaks for {', '.join(self.peaks)}")
        return Device(self.peaks[precision] * self.share, self.bandwidth)

    def reaching(self, compute: float = 1.0, memory: float = 1.0, links: float = 1.0) -> "Machine":
        """Return the machine as a program sees it, with shares of the peak and of the memory's and links' rates."""
        return self._replace(
            share=compute, bandwidth=self.bandwidth * memory, network=self.network.reaching(links), seen=True
        )

    def usual(self, precision: str = "fp16") -> "Machine":
        """Return the machine as programs of a precision usually see it; unchanged after `reaching`."""
        share = self.vector if precision == "fp32" else self.matrix
        return self if self.seen else self.reaching(share, MEMORY, FITTED_SHARE)

    def kernels(self, precision: str = "fp32") -> Kernels:
        """Return the rates of its kernels; raise ValueError for a precision without a peak."""
        device = self.device(precision)
        return Kernels(device.peak, device.bandwidth, self.processors, self.launch, GAP, tensor=precision != "fp32")


def _link(nbytes_per_second: float, alpha: float = RDMA) -> Link:
    return Link(alpha, 1 / nbytes_per_second)


LECTURE = "the lecture's table of accelerators (P100, V100, A100)"
PCIE_3 = 16 * 8e9 * 128 / 130 / 8  # 16 lanes of 8 Gbit/s, 128 of 130 bits are payload

K80 = Machine(
    "K80", {"fp32": 8.74e12 / 2}, 240e9, 12e9, Nodes(2, _link(PCIE_3), _link(10 * GIGABIT, TCP)),
    "one of the board's two GPUs: 8.74 TFLOP/s boosted and 2 x 240 GB/s (AnandTech 2014); 10 Gb/s is assumed",
    processors=13, vector=K80_VECTOR,
)  # fmt: skip
P40 = Machine(
    "P40", {"fp32": 11.76e12}, 346e9, 24e9, Nodes(8, _link(PCIE_3), _link(100 * GIGABIT)),
    "data sheet (11.76 TFLOP/s, 346 GB/s); 8 to a node with 100 Gb/s Ethernet: the lecture's case study",
    processors=30,
)  # fmt: skip
P100 = Machine(
    "P100", {"fp32": 10.6e12}, 720e9, 16e9, Nodes(8, _link(160e9 / 2), _link(50 * GIGABIT, TCP)),
    f"{LECTURE}; 8 to a server, NVLink 160 GB/s both ways, 50 Gb/s Ethernet (Goyal et al. 2017)",
    processors=56,
)  # fmt: skip
V100_DGX1 = Machine(
    "V100 (DGX-1)", {"fp32": 15.7e12, "fp16": 125e12}, 900e9, 16e9,
    Nodes(8, _link(300e9 / 2), _link(4 * 100 * GIGABIT), cards=4),
    f"{LECTURE}; 8 to a server, NVLink 300 GB/s both ways, four 100 Gb/s InfiniBand",
    processors=80, matrix=V100_MATRIX,
)  # fmt: skip
V100_DGX2 = V100_DGX1._replace(
    name="V100 (DGX-2)", memory=32e9, network=Nodes(16, _link(300e9 / 2), _link(8 * 100 * GIGABIT), cards=8),
    source=f"{LECTURE}; 16 to a server, NVSwitch, eight 100 Gb/s InfiniBand (Shoeybi et al. 2019)",
)  # fmt: skip
A100_DGX = Machine(
    "A100 (DGX)", {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}, 1.6e12, 40e9,
    Nodes(8, _link(600e9 / 2), _link(8 * 200 * GIGABIT), cards=8),
    f"{LECTURE}; 8 to a server, NVLink 600 GB/s both ways, eight 200 Gb/s InfiniBand (Smith et al. 2022)",
    processors=108, matrix=A100_MATRIX,
)  # fmt: skip
A100_SUPERPOD = A100_DGX._replace(
    name="A100 (Superpod)", memory=80e9, bandwidth=2.039e12,
    source=f"{A100_DGX.source}; GPUs of 80 GB (Narayanan et al. 2021), whose data sheet has 2,039 GB/s",
)  # fmt: skip
H100_DGX = Machine(
    "H100 (DGX)",
    {"fp32": 66.9e12, "tf32": 494.7e12, "fp16": 989.4e12, "bf16": 989.4e12, "fp8": 1978.9e12}, 3.35e12, 80e9,
    Nodes(8, _link(900e9 / 2), _link(8 * 400 * GIGABIT), cards=8),
    "H100 SXM5, dense; NVLink 900 GB/s both ways; eight 400 Gb/s InfiniBand (NVIDIA's MLPerf system description)",
    processors=132, matrix=H100_700_W,
)  # fmt: skip
H200_DGX = H100_DGX._replace(
    name="H200 (DGX)", bandwidth=4.8e12, memory=141e9,
    source="as an H100 SXM5, with 141 GB of HBM3e at 4.8 TB/s (NVIDIA's data sheet of the H200)",
)  # fmt: skip
H800 = H100_DGX._replace(
    name="H800", network=Nodes(8, _link(400e9 / 2), _link(8 * 400 * GIGABIT), cards=8),
    source="as an H100, with NVLink at 400 GB/s both ways and eight 400 Gb/s InfiniBand (DeepSeek-AI 2024)",
)  # fmt: skip
H100_GRAND_TETON = H100_DGX._replace(
    name="H100 (Grand Teton)", bandwidth=2.4e12, memory=96e9, matrix=H100_MATRIX,
    source="as the DGX's, with 96 GB of HBM2e at 2.4 TB/s and at most 500 W (torchtitan's page of benchmarks)",
)  # fmt: skip
TPU_V3 = Machine(
    "TPU v3", {"bf16": 123e12}, 900e9, 32 * 2**30, Torus(32, _link(112e9 / 2)),
    "one chip of two cores: Google Cloud's page on TPU v3; 1,024 chips in a torus of 32 x 32, 112 GB/s of links as "
    "Liu et al. 2023 (ring attention) count them, half of it each way",
)  # fmt: skip
EPYC_7642 = Machine(
    "EPYC 7642, one core", {"fp32": 2.3e9 * 2 * 8 * 2}, 204.8e9, 512e9,
    Nodes(1, _link(204.8e9, 0.0), _link(10 * GIGABIT, TCP)),
    "the lecture's comparison with an A100: one core of 2.3 GHz, 512 GB; two 256-bit multiply-adds per cycle and eight "
    "channels of DDR4-3200 for all cores (Microway's page on EPYC Rome); 10 Gb/s is assumed",
    vector=0.8,
)  # fmt: skip

MACHINES = {
    machine.name: machine
    for machine in (
        K80,
        P40,
        P100,
        V100_DGX1,
        V100_DGX2,
        A100_DGX,
        A100_SUPERPOD,
        H100_DGX,
        H100_GRAND_TETON,
        H200_DGX,
        H800,
        TPU_V3,
        EPYC_7642,
    )
}
