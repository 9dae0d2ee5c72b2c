"""Compile Triton kernels for cards that this machine does not have, and report registers, spills and instructions.

    build = Build("module:kernel", {"x": "*fp32:16", "y": "*fp32:16", "n": "i32"}, {"BLOCK": 1024}, "sm_90")
    (report,) = compile_ahead([build])
    assert report.spills == 0 and set(report.loads) == {16} and report.per_element(1024) < 4

Triton's interpreter models none of this, and a kernel defined under it cannot be compiled: so compilation runs in
separate processes with the interpreter off.
"""

import importlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from hpcdl.machine import cores


class Target(NamedTuple):
    """A card as Triton names it, and the shared memory in bytes that one program may have there."""

    backend: str
    arch: int | str
    warp_size: int
    shared_limit: int


# Shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; CDNA 3's LDS is 64 KB.
TARGETS = {
    "sm_80": Target("cuda", 80, 32, 163 * 1024),
    "sm_90": Target("cuda", 90, 32, 227 * 1024),
    "gfx942": Target("hip", "gfx942", 64, 64 * 1024),
}


class Build(NamedTuple):
    """One kernel to compile: "module:name", its arguments' types, its constants, a key of `TARGETS`.

    A type is "*fp16", "*i16", "i32", ...; ":16" behind it promises that the address or number is divisible by 16, as
    Triton finds out by itself at a launch. Without the promise loads are not vectorized.
    """

    kernel: str
    arguments: dict[str, str]
    constants: dict
    target: str
    warps: int = 4
    stages: int = 2

    @classmethod
    def of_launch(cls, kernel: Any, arguments: tuple, constants: dict, target: str, warps: int = 4, stages: int = 2):
        """The build that `kernel[grid](*arguments, **constants)` would cause; tensors may be on the device "meta"."""
        named = dict(zip(kernel.arg_names, arguments, strict=False))
        fixed = {name: value for name, value in named.items() if value is None or (type(value) is int and value == 1)}
        types = {name: _type(value) for name, value in named.items() if name not in fixed}
        return cls(f"{kernel.fn.__module__}:{kernel.fn.__name__}", types, constants | fixed, target, warps, stages)


class CompileReport(NamedTuple):
    """The result of a `Build`: machine instructions by name (counted in the code, not by execution)."""

    build: Build
    registers: int  # per thread
    spills: int  # instructions (NVIDIA) or registers (AMD) spilled to memory
    shared: int  # bytes per program
    instructions: Counter[str]
    assembly: str

    def count(self, pattern: str) -> int:
        """How many instructions have a name that the regular expression `pattern` matches from its start."""
        return sum(times for name, times in self.instructions.items() if re.match(pattern, name))

    @property
    def loads(self) -> dict[int, int]:
        """Loads from global memory: bytes for each thread -> how many."""
        return self._widths(r"LDG(?:STS)?\.|(?:global|buffer|flat)_load_")

    @property
    def stores(self) -> dict[int, int]:
        """Stores to global memory: bytes for each thread -> how many."""
        return self._widths(r"STG\.|(?:global|buffer|flat)_store_")

    def _widths(self, pattern: str) -> dict[int, int]:
        widths = Counter()
        for name, times in self.instructions.items():
            if re.match(pattern, name):
                widths[_bytes(name)] += times
        return dict(widths)

    @property
    def matrix(self) -> int:
        """Matrix instructions: mma.sync (HMMA), wgmma (HGMMA), v_mfma."""
        return self.count(r"HMMA|HGMMA|IMMA|IGMMA|QGMMA|v_mfma")

    @property
    def fits(self) -> bool:
        """Whether the card has the shared memory that a program needs."""
        return self.shared <= TARGETS[self.build.target].shared_limit

    def per_element(self, elements: int) -> float:
        """Instructions of a thread for each element, where a program without loops does `elements` of them."""
        threads = self.build.warps * TARGETS[self.build.target].warp_size
        return self.instructions.total() * threads / elements


def compile_ahead(builds: Iterable[Build]) -> list[CompileReport]:
    """Return a report for each build, in order; raise RuntimeError with Triton's message if one does not compile."""
    builds = list(builds)
    for build in builds:
        if build.target not in TARGETS:
            raise ValueError(f"target {build.target!r} is unknown; it is one of {', '.join(TARGETS)}")
    processes = min(len(builds), cores())
    with ThreadPoolExecutor(max(1, processes)) as threads:
        shares = threads.map(_in_new_process, [builds[i::processes] for i in range(processes)])
        found = dict(enumerate(shares))
    return [found[i % processes][i // processes] for i in range(len(builds))]


def _bytes(name: str) -> int:
    """What a load or store of this name moves for each thread; 4 where the name says nothing."""
    units = {"dword": 4, "short": 2, "ushort": 2, "sshort": 2, "ubyte": 1, "sbyte": 1, "byte": 1}
    if found := re.search(r"\.(U8|S8|U16|S16|64|128)(\.|$)", name):
        return int(found[1].strip("US")) // 8
    if found := re.search(r"_(?:load|store)_(?:lds_)?([a-z]+?)(?:x(\d))?(?:_|$)", name):
        return units[found[1]] * int(found[2] or 1)
    return 4


def _type(value) -> str:
    """The type of an argument with what a launch finds out about it: 16 divides an address or a number, or not."""
    if isinstance(value, float):
        return "fp32"
    kind, number = ("i32" if abs(value) < 2**31 else "i64", value) if isinstance(value, int) else _pointer(value)
    return kind + ":16" * (number % 16 == 0)


def _pointer(tensor) -> tuple[str, int]:
    if tensor.dtype.is_floating_point:
        kind = "bf16" if str(tensor.dtype) == "torch.bfloat16" else f"fp{8 * tensor.element_size()}"
    else:
        kind = f"{'i' if tensor.dtype.is_signed else 'u'}{8 * tensor.element_size()}"
    return f"*{kind}", tensor.data_ptr()


def _in_new_process(builds: list[Build]) -> list[CompileReport]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", "from hpcdl.kernels import ahead_of_time; ahead_of_time._serve()"]
    ended = subprocess.run(command, input=pickle.dumps(builds), capture_output=True, env=environment, check=False)
    if ended.returncode:
        raise RuntimeError(f"a kernel does not compile:\n{ended.stderr.decode()}")
    return pickle.loads(ended.stdout)


def _serve() -> None:
    output, sys.stdout = sys.stdout.buffer, sys.stderr
    pickle.dump([_compile(build) for build in pickle.load(sys.stdin.buffer)], output)


def _compile(build: Build) -> CompileReport:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    kernel = _find(build.kernel)
    types = {name: build.arguments.get(name, "constexpr") for name in kernel.arg_names}
    missing = set(types) - set(build.arguments) - set(build.constants)
    if missing:
        raise ValueError(f"{build.kernel} also needs a type or a constant for {', '.join(sorted(missing))}")
    signature = {name: kind.removesuffix(":16") for name, kind in types.items()}
    divisible = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind.endswith(":16")}
    target = TARGETS[build.target]
    compiled = compile(
        ASTSource(kernel, signature, build.constants, divisible),
        target=GPUTarget(target.backend, target.arch, target.warp_size),
        options={"num_warps": build.warps, "num_stages": build.stages},
    )
    read = _read_cubin if target.backend == "cuda" else _read_amdgcn
    return CompileReport(build, *read(compiled))


def _find(name: str):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _read_cubin(compiled) -> tuple:
    """Registers, spills, shared bytes, instructions and listing, by the `cuobjdump` that comes with Triton."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", file.name]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", listing)
    instructions = Counter(name for name in names if name != "NOP")
    spills = sum(times for name, times in instructions.items() if name.startswith(("STL", "LDL")))
    usage = re.search(r"REG:(\d+)", listing)
    assert usage is not None  # asked for by -res-usage
    registers = int(usage[1])
    return registers, spills, compiled.metadata.shared, instructions, listing


def _read_amdgcn(compiled) -> tuple:
    listing = compiled.asm["amdgcn"]
    facts = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)$", listing, re.MULTILINE)}
    instructions = Counter(re.findall(r"^\t([a-z]\w+)", listing, re.MULTILINE))
    spills = facts["vgpr_spill_count"] + facts["sgpr_spill_count"]
    return facts["vgpr_count"], spills, compiled.metadata.shared, instructions, listing
