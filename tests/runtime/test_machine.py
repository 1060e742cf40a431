"""Measuring the machine: figures are plausible, code exists for every instruction set."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest

from terrazzo.errors import MemoryShortage
from terrazzo.runtime import machine, probes
from terrazzo.targets.cpu import codegen, host, isa, jit, pool


def test_facts() -> None:
    facts = machine.describe()
    assert 0 < facts.memory_available <= facts.memory_total
    assert facts.numpy == np.__version__ and facts.architecture == platform.machine()
    assert facts.cpu and re.fullmatch(r"\d+\.\d+\.\d+", facts.llvm)
    assert facts.as_dict()["llvmlite"] == facts.llvmlite


def test_figures_are_plausible() -> None:
    """Bounds that no CPU of today crosses: they catch loops that do nothing."""
    found = machine.measure(1, working_sets=(256 << 10, 8 << 20))
    assert all(0.01 < figure < 2000 for figure in found.read_gb_s.values())
    assert 0.01 < found.f32_gflop_s < 500
    assert found.int8_gop_s is None or 0.01 < found.int8_gop_s < 5000


@pytest.mark.parametrize("threads", [1, 3])
def test_the_reading_loop_reads_everything(threads: int) -> None:
    code = jit.load(codegen.compile_object(probes.read_ir(), host.HostIsa()))
    share = 8 * probes.READ_STEP
    data = pool.private_memory(share * threads)
    data[:] = np.random.default_rng(0).integers(0, 256, len(data), np.uint8)
    sinks = pool.private_memory(64 * threads)
    table = np.zeros(16, np.int64)
    table[8:12] = data.ctypes.data, share, 2, sinks.ctypes.data
    pool.shared().run(pool.Program([(code.address("read"), table.ctypes.data)]), threads)
    for thread in range(threads):
        mine = data[thread * share : (thread + 1) * share].view(np.uint32).reshape(-1, 16)
        sums = sinks[64 * thread : 64 * (thread + 1)].view(np.uint32)
        assert np.array_equal(sums, mine.sum(axis=0, dtype=np.uint32))


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_the_stream_adds_its_inputs(inputs: int, around: bool) -> None:
    threads, share = 2, 8 * probes.READ_STEP
    code = jit.load(codegen.compile_object(probes.stream_ir(inputs, around), host.HostIsa()))
    apart = share * threads
    data = pool.private_memory(apart * (inputs + 1)).view(np.uint32).reshape(inputs + 1, -1)
    data[:] = np.random.default_rng(0).integers(0, 2**32, data.shape, np.uint32)
    given = data[1:].copy()
    table = np.zeros(16, np.int64)
    table[8:13] = data.ctypes.data, share, 2, 0, apart
    pool.shared().run(pool.Program([(code.address("stream"), table.ctypes.data)]), threads)
    assert np.array_equal(data[0], given.sum(axis=0, dtype=np.uint32))
    assert np.array_equal(data[1:], given)


@pytest.mark.parametrize(
    ("name", "cpu", "fma", "dot"),
    [
        ("avx512vnni", "sapphirerapids", r"vfmadd\w+ps\t.*zmm", r"vpdpbusd\t.*zmm"),
        ("avx512", "skylake-avx512", r"vfmadd\w+ps\t.*zmm", r"vpmaddubsw\t.*ymm"),
        ("avx2", "haswell", r"vfmadd\w+ps\t.*ymm", r"vpmaddubsw\t.*ymm"),
    ],
)
def test_peaks_use_the_set_s_instructions(name: str, cpu: str, fma: str, dot: str) -> None:
    """In the loop, once a chain, and not moved out of it."""
    other = isa.cross(name, cpu=cpu)
    found = probes.int_dot_ir(other)
    assert found is not None
    for text, pattern in ((probes.fma_ir(other)[0], fma), (found[0], dot)):
        code = codegen.assembly(text, other, "x86_64-linux-gnu")
        loop = max(
            re.split(r"^\.LBB\w+:.*$", code, flags=re.M), key=lambda b: len(re.findall(pattern, b))
        )
        assert len(re.findall(pattern, loop)) == probes.CHAINS and re.search(r"\tj[a-z]+\t", loop)


def test_no_integer_figure_without_an_instruction() -> None:
    assert probes.int_dot_ir(isa.cross("plain")) is None


def test_too_large_a_working_set() -> None:
    with pytest.raises(MemoryShortage, match="measuring the bandwidth needs"):
        machine.read_bandwidth(1 << 50, 1)
    with pytest.raises(MemoryShortage, match="measuring the bandwidth needs"):
        machine.stream_bandwidth(2, 1 << 50, 1)
