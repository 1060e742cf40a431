"""A kernel of the language called on an NPU, against a stand-in for PyACL and one for hivmc: what
is compiled and loaded, once a kind of call; how the arguments lie; which stream. The stand-in
computes with the memory whose addresses it is given: a wrong order shows in the numbers."""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ascend_extra import needs_wheel
from stand_in import SYNC_ADDRESS, Driver
from test_launch_dlpack import Tensor

import terrazzo.lang as tz
from terrazzo.errors import ArgumentError, DeviceUnavailable, OptionError
from terrazzo.kernels import linear, norm
from terrazzo.kernels import math as kernels
from terrazzo.runtime import ascend, davinci
from terrazzo.targets.ascend.device import Device, opened

RNG = np.random.default_rng(5)


@pytest.fixture
def hivmc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A code generator whose objects are the modules it was given; a line a run in the file."""
    fake, log = tmp_path / "hivmc", tmp_path / "runs"
    fake.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "hivmc 0.2.0 (abcdef0 2026-01-01)"; exit 0; fi\n'
        f'echo "$1" >> {log}\ngiven="$1"\n'
        'while [ "$1" != -o ]; do shift; done\ncp "$given" "$2"\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    log.touch()
    return log


@pytest.fixture
def open_npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Driver, Device]]]:
    """`open_npu(driver options…)`: NPU 0 of this process, until the test is over."""
    monkeypatch.setattr(ascend, "_ready", {})
    devices: list[Device] = []

    def call(*args: Any, **options: Any) -> tuple[Driver, Device]:
        driver = Driver(*args, **options)
        devices.append(Device(acl=driver, sync_address=driver.sync_address))
        return driver, devices[-1]

    yield call
    for device in devices:
        device.close()


def floats(driver: Driver, address: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Device memory as a dense array."""
    count = int(np.prod(shape))
    return driver.memory[address].view(dtype)[:count].reshape(shape)


def add(driver: Driver, packed: bytes) -> None:
    a, b, out = struct.unpack("<QQQ", packed)
    count = len(driver.memory[out]) // 4
    floats(driver, out, count)[:] = floats(driver, a, count) + floats(driver, b, count)


def launches(driver: Driver) -> list[tuple[Any, ...]]:
    return [c for c in driver.calls if c[0] == "launch_kernel_with_config"]


@needs_wheel
def test_arrays_go_there_and_back(open_npu: Any, hivmc: Path) -> None:
    driver, device = open_npu("Ascend910B3", cube=20, vector=40)
    driver.kernel = add
    a, b = RNG.standard_normal((2, 5000)).astype(np.float32)
    out = np.zeros(5000, np.float32)
    kernels.add(a, b, out, target="ascend")
    np.testing.assert_array_equal(out, a + b)
    (call,) = launches(driver)
    assert call[2:4] == (40, device.stream)
    assert ("binary_load_from_data", len(driver.code[0]), [{"type": 2, "value": 0x41415246}]) in (
        driver.calls
    )
    assert b"hivm.hir.get_block_idx" in driver.code[0]
    got = [c[0] for c in driver.calls[driver.names().index("binary_get_function") :]]
    assert got == [
        "binary_get_function", *3 * ["malloc", "memcpy"], "kernel_args_init", "kernel_args_append",
        "kernel_args_finalize", "launch_kernel_with_config", "synchronize_stream", "memcpy",
        *3 * ["free"],
    ]  # fmt: skip


@needs_wheel
def test_the_documented_call(open_npu: Any, hivmc: Path) -> None:
    """docs/ascend.md: its block on calling a kernel runs."""
    driver, _ = open_npu()
    driver.kernel = add
    text = (Path(__file__).parents[2] / "docs" / "ascend.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = (b for b in blocks if "target=" in b)
    exec(block, {})
    assert len(launches(driver)) == 1


@needs_wheel
def test_a_kind_of_call_is_compiled_and_loaded_once(open_npu: Any, hivmc: Path) -> None:
    driver, device = open_npu()
    driver.kernel = add
    for n in (64, 64, 96, 64):
        x = device.tensor(np.full(n, 2, np.float32))
        out = device.tensor(np.zeros(n, np.float32))
        kernels.add(x, x, out)
        np.testing.assert_array_equal(device.array(out), np.full(n, 4))
    assert len(hivmc.read_text().splitlines()) == 2 and len(driver.code) == 2
    assert "synchronize_stream" not in driver.names()
    device.close()
    driver, device = open_npu()  # the code is known, to be loaded again
    driver.kernel = add
    kernels.add(*(device.tensor(np.zeros(64, np.float32)) for _ in "abc"))
    assert len(hivmc.read_text().splitlines()) == 2 and len(driver.code) == 1


@needs_wheel
def test_cores_are_those_of_the_runtime(open_npu: Any, hivmc: Path) -> None:
    driver, _ = open_npu("Ascend910B2", cube=22, vector=44)
    kernels.add(*(np.zeros(50_000, np.float32) for _ in "abc"), target="ascend")
    m = np.zeros((300, 300), np.float16)
    linear.matmul(m, m, m.copy(), target="ascend")
    assert [c[2] for c in launches(driver)] == [44, 22]


@needs_wheel
def test_numbers_follow_the_tensors(open_npu: Any, hivmc: Path) -> None:
    """eps is a scalar parameter in the middle of the signature's defaults; x, weight, out, eps."""
    driver, device = open_npu()

    def rms(driver: Driver, packed: bytes) -> None:
        x, weight, out, eps = struct.unpack("<QQQf4x", packed)
        v = floats(driver, x, 30, 64)
        scale = 1 / np.sqrt((v * v).mean(1, keepdims=True) + np.float32(eps))
        floats(driver, out, 30, 64)[:] = v * scale * floats(driver, weight, 64)

    driver.kernel = rms
    x, w = RNG.standard_normal((30, 64)).astype(np.float32), np.full(64, 3, np.float32)
    out, want = np.zeros_like(x), np.zeros_like(x)
    norm.rms_norm(x, w, out, 0.25, target="ascend")
    norm.rms_norm.reference(x, w, want, 0.25)
    np.testing.assert_allclose(out, want, rtol=1e-6)
    norm.rms_norm(x, w, out, 4.0, target="ascend")  # another number, the same code
    norm.rms_norm.reference(x, w, want, 4.0)
    np.testing.assert_allclose(out, want, rtol=1e-6)
    assert len(driver.code) == 1


@needs_wheel
def test_mixed_kernels_have_signals_and_workspaces_in_front(open_npu: Any, hivmc: Path) -> None:
    driver, device = open_npu()
    seen: list[tuple[int, ...]] = []

    def gelu(driver: Driver, packed: bytes) -> None:
        seen.append(struct.unpack("<QQQQQQ", packed))
        _, _, a, b, bias, out = seen[-1]
        x = floats(driver, a, 40, 64, dtype=np.float16).astype(np.float32)
        y = x @ floats(driver, b, 64, 48, dtype=np.float16).astype(np.float32)
        y += floats(driver, bias, 48)
        floats(driver, out, 40, 48, dtype=np.float16)[:] = y

    driver.kernel = gelu
    names = [p.name for p in linear.matmul_bias_gelu.params if p.kind == "tensor"]
    assert names == ["a", "b", "bias", "out"]
    a, b = (RNG.standard_normal(s).astype(np.float16) for s in ((40, 64), (64, 48)))
    bias, out = np.ones(48, np.float32), np.zeros((40, 48), np.float16)
    for _ in range(2):
        linear.matmul_bias_gelu(a, b, bias, out, target="ascend")
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32) + 1, rtol=2**-10)
    (sync, workspace, *_), again = seen
    assert sync == SYNC_ADDRESS and again[1] == workspace  # kept from launch to launch
    low = davinci.lowered(linear.matmul_bias_gelu, (a, b, bias, out), {}, device.chip)
    (shape,) = [g.shape for g in low.program.gm if g.workspace]
    assert len(driver.memory[workspace]) == 4 * np.prod(shape)
    assert launches(driver)[0][2] == 24
    assert ("binary_load_from_data", len(driver.code[0]), []) in driver.calls


@needs_wheel
def test_torch_tensors_stay_on_torchs_stream(
    open_npu: Any, hivmc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, device = open_npu()
    driver.kernel = add
    torch: Any = ModuleType("torch")
    torch.Tensor = Tensor
    torch.npu = SimpleNamespace(current_stream=lambda: SimpleNamespace(npu_stream=0x7000))
    monkeypatch.setitem(sys.modules, "torch", torch)
    made = [device.tensor(np.full(32, v, np.float32)) for v in (1, 2, 0)]
    kernels.add(*(Tensor(x.address, (32,)) for x in made))
    np.testing.assert_array_equal(device.array(made[2]), np.full(32, 3))
    assert launches(driver)[0][3] == 0x7000 and "synchronize_stream" not in driver.names()


@needs_wheel
def test_memory_that_is_shared(open_npu: Any, hivmc: Path) -> None:
    _, device = open_npu()
    x = device.tensor(np.zeros((32, 32), np.float16))
    with pytest.raises(ArgumentError, match="arguments `a` and `out` of `matmul` share memory"):
        linear.matmul(x, device.tensor(np.zeros((32, 32), np.float16)), x)
    y = np.zeros((48, 32), np.float16)
    with pytest.raises(ArgumentError, match="arguments `a` and `out` of `matmul` share memory"):
        linear.matmul(y[:32], y[:32].copy(), y[16:], target="ascend")
    kernels.add(*3 * [np.zeros(64, np.float32)], target="ascend")  # it declares that they may


@needs_wheel
def test_what_is_loaded_is_bounded(
    open_npu: Any, hivmc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, device = open_npu()
    driver.kernel = add
    monkeypatch.setattr(ascend, "REMEMBERED", 2)
    for n in (8, 16, 24):
        kernels.add(*(np.zeros(n, np.float32) for _ in "abc"), target="ascend")
    assert driver.names().count("binary_unload") == 1
    assert [k for k, _ in driver.live if k == "binary"] == ["binary"] * 2


@needs_wheel
def test_without_hivmc(open_npu: Any) -> None:
    open_npu()
    with pytest.raises(DeviceUnavailable, match=r"`add` cannot .* hivmc is not on PATH; install"):
        kernels.add(*(np.zeros(9, np.float32) for _ in "abc"), target="ascend")


def test_without_cann() -> None:
    with pytest.raises(DeviceUnavailable, match="no Ascend NPU can be used: .*acl"):
        kernels.add(*(np.zeros(8, np.float32) for _ in "abc"), target="ascend")


def test_targets_that_there_are() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(OptionError, match="there is no target 'tpu'; choose from cpu, ascend"):
        kernels.add(x, x, out, target="tpu")
    kernels.add(x, x, out, target="cpu")
    np.testing.assert_array_equal(out, np.full(8, 2))


def test_a_tensor_of_an_npu_on_the_cpu(open_npu: Any) -> None:
    _, device = open_npu()
    x = device.tensor(np.zeros(8, np.float32))
    with pytest.raises(ArgumentError, match="is to run on the CPU, and a tensor is on an NPU"):
        kernels.add(x, x, x, target="cpu")


def test_a_parameter_may_be_called_target() -> None:
    (n,) = tz.dims("n")

    @tz.kernel
    def fill(out: tz.gm[tz.f32, n], target: tz.f32):
        """out = target"""
        for i in tz.grid(n, step=8):
            out[i] = tz.zeros(i) + target

    out = np.zeros(8, np.float32)
    fill(out, target=3.0)
    np.testing.assert_array_equal(out, np.full(8, 3))


def test_one_device_a_process(open_npu: Any) -> None:
    _, device = open_npu()
    assert opened(0) is device
    device.close()
    with pytest.raises(DeviceUnavailable):
        opened(0)
