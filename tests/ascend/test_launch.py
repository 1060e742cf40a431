"""Launching against a stand-in for PyACL: which calls, in which order, with which bytes; errors in
ACL's own words; nothing left behind."""

from __future__ import annotations

import logging
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stand_in import SYNC_ADDRESS, Driver

from terrazzo.errors import (
    ArgumentError,
    DeviceError,
    DeviceUnavailable,
    MemoryShortage,
    TerrazzoError,
)
from terrazzo.ir.types import f16, f32, i32
from terrazzo.targets.ascend import pyacl
from terrazzo.targets.ascend.arguments import Parameter
from terrazzo.targets.ascend.device import Device, Survey, survey
from terrazzo.targets.ascend.launch import Binary, Loaded

N = 100
ADD = Binary(
    b"\x7fELF of a vector kernel", "add", "aiv",
    (Parameter("a", f32, (N,)), Parameter("b", f32, (N,)), Parameter("out", f32, (N,), True)),
    blocks=48,
)  # fmt: skip
MIX = Binary(
    b"\x7fELF of both", "mm_gelu", "mix",
    (Parameter("a", f16, (4, 8)), Parameter("n", i32), Parameter("out", f16, (4, 8), True)),
    blocks=20, workspace=65536,
)  # fmt: skip


def opened(driver: Driver, **options: Any) -> Device:
    return Device(acl=driver, sync_address=driver.sync_address, **options)


def array_at(driver: Driver, address: int, count: int = N) -> np.ndarray:
    """Device memory as f32."""
    return driver.memory[address].view(np.float32)[:count]


def add(driver: Driver, packed: bytes) -> None:
    a, b, out = struct.unpack("<QQQ", packed)
    array_at(driver, out)[:] = array_at(driver, a) + array_at(driver, b)


def after(driver: Driver, start: int) -> list[tuple[Any, ...]]:
    return driver.calls[start:]


def test_opening_asks_the_runtime() -> None:
    driver = Driver("Ascend910B3", cube=20, vector=40)
    device = opened(driver, index=3)
    assert driver.calls == [
        ("init",), ("get_device_count",), ("set_device", 3),
        ("get_device_info", 3, 102), ("get_device_info", 3, 201), ("create_stream",),
    ]  # fmt: skip
    assert (device.chip.name, device.cores) == ("910b3", {"cube": 20, "vector": 40})
    device.close()
    assert driver.calls[6:] == [("destroy_stream", device.stream), ("reset_device", 3)]
    device.close()  # once is enough
    assert len(driver.calls) == 8 and not driver.live
    with pytest.raises(DeviceError, match="was closed"):
        device.allocate(8)


def test_arrays_there_and_back() -> None:
    driver = Driver()
    driver.kernel = add
    device = opened(driver)
    kernel = Loaded(device, ADD)
    start = len(driver.calls)
    a, b, out = np.arange(N, dtype=np.float32), np.full(N, 0.5, np.float32), np.zeros(N, np.float32)
    kernel(a, b, out)
    assert np.array_equal(out, a + b)
    assert driver.code == [ADD.code]
    function = kernel._function
    calls = after(driver, start)
    assert [c[0] for c in calls] == [
        "malloc", "memcpy", "malloc", "memcpy", "malloc", "memcpy",
        "kernel_args_init", "kernel_args_append", "kernel_args_finalize",
        "launch_kernel_with_config", "synchronize_stream", "memcpy", "free", "free", "free",
    ]  # fmt: skip
    assert calls[0] == ("malloc", 4 * N, 0)
    assert calls[1][2:] == (4 * N, a.ctypes.data, 4 * N, 1)
    assert calls[6:10] == [
        ("kernel_args_init", function), ("kernel_args_append", function + 1, 24),
        ("kernel_args_finalize", function + 1),
        ("launch_kernel_with_config", function, 48, device.stream, [], function + 1, 0),
    ]  # fmt: skip
    assert calls[10] == ("synchronize_stream", device.stream)
    assert calls[11] == ("memcpy", out.ctypes.data, 4 * N, calls[5][1], 4 * N, 2)
    assert struct.unpack("<QQQ", driver.packed[0]) == tuple(calls[n][1] for n in (1, 3, 5))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("aiv", [{"type": 2, "value": 0x41415246}]),
        ("aic", [{"type": 2, "value": 0x43554245}]),
        ("mix", []),
    ],
)
def test_loading_says_which_cores(kind: Any, options: list[dict[str, int]]) -> None:
    driver = Driver()
    loaded = Loaded(opened(driver), replace(ADD, kind=kind, blocks=24))
    load, get = driver.calls[-2:]
    assert load == ("binary_load_from_data", len(ADD.code), options)
    assert get == ("binary_get_function", loaded._handle, "add")
    loaded.close()
    assert driver.calls[-1] == ("binary_unload", loaded._handle)


def test_mixed_kernels_get_the_signal_address_and_a_workspace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = Driver()
    device = opened(driver)
    with caplog.at_level(logging.WARNING, "terrazzo.ascend"):
        kernel = Loaded(device, MIX)
    assert "mm_gelu" in caplog.text and "have not been launched" in caplog.text
    x, out = np.zeros((4, 8), np.float16), np.zeros((4, 8), np.float16)
    kernel(x, 7, out)
    sync, workspace, a, n, o = struct.unpack("<QQQi4xQ", driver.packed[0])
    assert (sync, n) == (SYNC_ADDRESS, 7) and a != o
    assert len(driver.memory[workspace]) == 65536 * 20  # it stays, for the next launch
    kernel(x, 8, out)
    assert struct.unpack("<QQQi4xQ", driver.packed[1])[1] == workspace
    assert driver.names().count("sync_address") == 2
    kernel.close()
    assert {kind for kind, _ in driver.live} == {"stream"}


def test_the_runtime_may_put_the_signal_address_itself() -> None:
    driver = Driver()
    kernel = Loaded(opened(driver), replace(MIX, sync="runtime"))
    kernel(np.zeros((4, 8), np.float16), 7, np.zeros((4, 8), np.float16))
    assert len(driver.packed[0]) == 32 and "sync_address" not in driver.names()


def test_triton_convention_with_locks() -> None:
    """Sync address, lock, workspace, own arguments, grid; locks are set anew before each launch,
    after the one before is done."""
    driver = Driver()
    device = opened(driver)
    binary = replace(ADD, convention="triton", workspace=128, locks=3, lock_start=5)
    kernel = Loaded(device, binary)
    tensors = [device.tensor(np.zeros(N, np.float32)) for _ in "abc"]
    for launch in range(2):
        start = len(driver.calls)
        kernel(*tensors)
        sync, lock, workspace, *own, x, y, z = struct.unpack(
            "<QQQ QQQ iii4x", driver.packed[launch]
        )
        assert (sync, x, y, z) == (SYNC_ADDRESS, 48, 1, 1)
        assert own == [t.address for t in tensors]
        assert len(driver.memory[workspace]) == 128 * 48
        locks = driver.memory[lock].view(np.int64)[:3]
        assert locks.tolist() == [5, 5, 5]
        names = [c[0] for c in after(driver, start)]
        assert ("synchronize_stream" in names) == (launch == 1)
        locks[:] = 1, 2, 3  # what a kernel leaves behind


def test_device_tensors_stay_and_nothing_waits() -> None:
    driver = Driver()
    driver.kernel = add
    device = opened(driver)
    kernel = Loaded(device, ADD)
    a, b, out = (device.tensor(np.full(N, v, np.float32)) for v in (1, 2, 0))
    start = len(driver.calls)
    kernel(a, b, out)
    assert [c[0] for c in after(driver, start)] == [
        "kernel_args_init", "kernel_args_append", "kernel_args_finalize",
        "launch_kernel_with_config",
    ]  # fmt: skip
    device.synchronize()
    assert (device.array(out) == 3).all()
    other = device.new_stream()
    kernel(a, b, out, stream=other)
    assert driver.calls[-1][3] == other
    device.free(a.address)
    assert a.address not in driver.memory


def test_streams_have_workspaces_of_their_own() -> None:
    driver = Driver()
    device = opened(driver)
    kernel = Loaded(device, replace(MIX, parameters=()))
    other = device.new_stream()
    for stream in (device.stream, other, None):
        kernel(stream=stream)
    places = [struct.unpack("<QQ", p)[1] for p in driver.packed]
    assert places[0] == places[2] != places[1]


def test_memory_shared_by_arguments_is_shared_there() -> None:
    """In place: `out` is `a`; both are one device buffer, and the result is in the array."""
    driver = Driver()
    driver.kernel = add
    kernel = Loaded(opened(driver), ADD)
    x = np.ones(N, np.float32)
    kernel(x, x, x)
    assert (x == 2).all() and len(set(struct.unpack("<QQQ", driver.packed[0]))) == 1


def test_strided_arrays_come_and_go_dense() -> None:
    driver = Driver()
    driver.kernel = add
    kernel = Loaded(opened(driver), ADD)
    a, out = np.arange(2 * N, dtype=np.float32)[::2], np.zeros((N, 3), np.float32)
    kernel(a, a, out[:, 1])
    assert np.array_equal(out[:, 1], 2 * a) and not out[:, ::2].any()


def test_empty_tensors() -> None:
    driver = Driver()
    parameters = tuple(replace(p, shape=(0, 4)) for p in ADD.parameters)
    kernel = Loaded(opened(driver), replace(ADD, parameters=parameters))
    kernel(*(np.zeros((0, 4), np.float32) for _ in "abc"))
    assert "memcpy" not in driver.names()


FAILING = [
    "malloc", "memcpy", "kernel_args_init", "kernel_args_append", "kernel_args_finalize",
    "launch_kernel_with_config", "synchronize_stream",
]  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_call_is_told_and_leaves_nothing(name: str) -> None:
    driver = Driver()
    device = opened(driver)
    kernel = Loaded(device, ADD)
    before = set(driver.live)
    driver.fail = {name: 507035}
    with pytest.raises(DeviceError) as e:
        kernel(*(np.zeros(N, np.float32) for _ in "abc"))
    said = str(e.value)
    assert e.value.code == 507035 and f"acl.rt.{name} failed with 507035" in said
    assert "a vector core stopped" in said and "EE9999: an inner error of the stand-in" in said
    assert "docs/ascend.md" in said
    assert driver.live == before
    driver.fail = {}
    kernel(*(np.zeros(N, np.float32) for _ in "abc"))


def test_freeing_that_fails_too_does_not_hide_the_first_error() -> None:
    driver = Driver()
    kernel = Loaded(opened(driver), ADD)
    driver.fail = {"synchronize_stream": 507015, "free": 107000}
    with pytest.raises(DeviceError, match="507015"):
        kernel(*(np.zeros(N, np.float32) for _ in "abc"))


@pytest.mark.parametrize("name", ["binary_load_from_data", "binary_get_function"])
def test_a_binary_that_does_not_load_is_unloaded(name: str) -> None:
    driver = Driver()
    device = opened(driver)
    driver.fail = {name: 107000}
    with pytest.raises(DeviceError, match=rf"{name} failed with 107000 .*mm_gelu.*Mixed kernels"):
        Loaded(device, MIX)
    assert {kind for kind, _ in driver.live} == {"stream"}


def test_a_mixed_kernel_that_fails_says_that_it_is_unproven() -> None:
    driver = Driver()
    kernel = Loaded(opened(driver), MIX)
    driver.fail = {"synchronize_stream": 507014}
    with pytest.raises(DeviceError, match="waiting for one another.*have not been launched"):
        kernel(np.zeros((4, 8), np.float16), 7, np.zeros((4, 8), np.float16))


def test_memory_that_is_used_up() -> None:
    driver = Driver()
    device = opened(driver)
    driver.fail = {"malloc": 207001}
    with pytest.raises(MemoryShortage, match=r"1,048,576 bytes on NPU 0.*EE9999"):
        device.allocate(1 << 20)


@pytest.mark.parametrize("name", ["set_device", "get_device_info", "create_stream"])
def test_a_device_that_does_not_open_is_given_back(name: str) -> None:
    driver = Driver()
    driver.fail = {name: 507033}
    with pytest.raises(DeviceError, match=f"acl.rt.{name} failed with 507033"):
        opened(driver)
    assert not driver.live
    assert driver.names().count("reset_device") == (name != "set_device")


def test_initialised_by_somebody_else() -> None:
    driver = Driver()
    driver.fail = {"init": 100002}
    opened(driver).close()
    opened(driver).close()
    assert driver.names().count("init") == 1


@pytest.mark.parametrize("name", ["init", "get_device_count"])
def test_cann_without_a_driver(name: str) -> None:
    driver = Driver()
    driver.fail = {name: 507899}
    with pytest.raises(DeviceUnavailable, match="no Ascend NPU.*507899.*npu-smi info"):
        opened(driver)


def test_no_such_npu() -> None:
    with pytest.raises(DeviceUnavailable, match="no NPU 8: CANN finds 8.*npu-smi info"):
        opened(Driver(), index=8)
    with pytest.raises(DeviceUnavailable, match="CANN finds 0"):
        opened(Driver(count=0))


def test_an_npu_of_another_kind() -> None:
    driver = Driver("Ascend310P3")
    with pytest.raises(DeviceUnavailable, match="'Ascend310P3', which is none.*910b2"):
        opened(driver)
    assert not driver.live and driver.names()[-1] == "reset_device"
    assert opened(driver, chip="910b4").chip.name == "910b4"


def test_too_few_cores() -> None:
    device = opened(Driver("Ascend910B3", cube=20, vector=40))
    with pytest.raises(ArgumentError, match="made for 48 vector cores, this Ascend910B3 has 40"):
        Loaded(device, ADD)
    with pytest.raises(ArgumentError, match="made for 24 cube cores"):
        Loaded(device, replace(MIX, blocks=24))
    Loaded(device, MIX)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([np.zeros(N, np.float32)] * 2, "takes 3 arguments, got 2"),
        ([np.zeros(N, np.float32)] * 2 + [np.zeros(N, np.float16)], "`out`.*float16"),
        ([np.zeros(N + 1, np.float32)] * 3, r"`a`.*f32 \[100\], got float32 \[101\]"),
        ([np.zeros(N, np.float32)] * 2 + [3.0], "got a float"),
        ([np.zeros(N, np.float32)] * 2 + [np.broadcast_to(np.float32(0), N)], "read-only"),
    ],
)
def test_arguments_that_do_not_fit(args: list[Any], said: str) -> None:
    driver = Driver()
    kernel = Loaded(opened(driver), ADD)
    start = len(driver.calls)
    with pytest.raises(ArgumentError, match=said):
        kernel(*args)
    assert not after(driver, start)


def test_every_thread_chooses_the_device() -> None:
    from concurrent.futures import ThreadPoolExecutor

    driver = Driver()
    device = opened(driver)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(device.allocate, 8).result()
        pool.submit(device.allocate, 8).result()
    assert driver.names().count("set_device") == 2
    device.close()
    assert driver.names().count("reset_device") == 2 and not driver.live


def test_closing_goes_on_after_a_failure() -> None:
    driver = Driver()
    device = opened(driver)
    Loaded(device, ADD)
    device.allocate(8)
    driver.fail = {"free": 507000}
    with pytest.raises(DeviceError, match="acl.rt.free failed with 507000"):
        device.close()
    assert not driver.live and driver.names()[-4:] == [
        "free", "binary_unload", "destroy_stream", "reset_device",
    ]  # fmt: skip


def test_the_end_of_the_process_releases_all() -> None:
    """Devices first, ACL last, unless ACL was somebody else's."""
    here = Path(__file__).parent
    script = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "import atexit\n"
        "from stand_in import Driver\n"
        "from terrazzo.targets.ascend.device import Device\n"
        "driver = Driver()\n"
        "if len(sys.argv) > 1: driver.fail = {'init': 100002}\n"
        "atexit.register(lambda: print(*driver.names()[6:], len(driver.live)))\n"
        "device = Device(acl=driver, sync_address=driver.sync_address)\n"
        "device.allocate(8)\n"
    )
    for argument, last in ((), ["finalize"]), (["other"], []):
        command = [sys.executable, "-c", script, *argument]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        want = ["malloc", "free", "destroy_stream", "reset_device", *last, "0"]
        assert run.stdout.split() == want and not run.stderr


def test_without_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acl", None)
    with pytest.raises(DeviceUnavailable) as e:
        Device()
    for word in ("no Ascend NPU", "CANN", "set_env.sh", "npu-smi info", "driver"):
        assert word in str(e.value)
    assert isinstance(e.value, TerrazzoError)


def test_cann_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    old: Any = type(sys)("acl")
    for name in ("init", "finalize", "get_soc_name", "get_recent_err_msg"):
        setattr(old, name, None)
    calls = {n: None for n in vars(pyacl.Runtime) if not n.startswith("_")}
    del calls["binary_load_from_data"]
    old.rt = SimpleNamespace(**calls)
    monkeypatch.setitem(sys.modules, "acl", old)
    with pytest.raises(DeviceUnavailable, match=r"no acl\.rt\.binary_load_from_data; .*CANN 8.5"):
        Device()
    old.rt.binary_load_from_data = None
    assert pyacl.load() is old


def test_survey_takes_nothing_and_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    assert survey(driver) == Survey(8, "Ascend910B2", "")
    assert driver.names() == ["init", "get_device_count"]
    assert survey(Driver(count=0)) == Survey(0, "", "CANN finds none")
    broken = Driver()
    broken.fail = {"get_device_count": 507899}
    assert "507899" in survey(broken).why

    class Odd(Driver):
        def get_device_count(self) -> tuple[int, int]:
            raise SystemError("broken")

    assert survey(Odd()).why == "SystemError: broken"
    monkeypatch.setitem(sys.modules, "acl", None)
    assert survey().count == 0 and "acl" in survey().why


def test_no_library_for_the_signal_address() -> None:
    with pytest.raises(DeviceUnavailable, match=r"libascendcl\.so"):
        pyacl.sync_address()


def test_the_documented_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/ascend.md: its block on an object file runs, with the stand-in for `acl`."""
    document = Path(__file__).parents[2] / "docs" / "ascend.md"
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (b for b in blocks if "add.o" in b)
    (tmp_path / "add.o").write_bytes(ADD.code)
    driver = Driver()
    driver.kernel = add
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "acl", driver)
    exec(compile(block, str(document), "exec"), {})
    assert driver.code == [ADD.code] and not driver.live


def test_documented_codes_are_the_known_ones() -> None:
    document = Path(__file__).parents[2] / "docs" / "ascend.md"
    table = re.findall(r"^\| ((?:\d{6}(?:, )?)+) \|", document.read_text(), re.MULTILINE)
    codes = {int(c) for row in table for c in row.split(", ")}
    assert codes <= {*pyacl.MEANING, pyacl.OUT_OF_MEMORY, 507899} and len(codes) == 7
