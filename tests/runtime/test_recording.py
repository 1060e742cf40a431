"""Recordings: replay, patching, scratch, cancel, Ctrl-C, faults, times."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc

import numpy as np
import pytest
from runtime_phases import phase, phases, run_script, table

from terrazzo.errors import Cancelled, KernelFault
from terrazzo.runtime.recording import Recording


def busy_recording(launches: int, times: int) -> Recording:
    recording = Recording("prefill")
    for _ in range(launches):
        recording.append("busy", [phase("busy")], table(0, times), {"times": [9]}, keep=phases())
    recording.finish(2)
    return recording


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_replay_runs_all_phases_in_order(threads: int) -> None:
    values = np.zeros(2 * threads, np.int64)
    recording = Recording("step")
    for _ in range(50):  # a launch of two phases that share a table, then one of a phase
        recording.append("shift", [phase("noop"), phase("shift")], table(values.ctypes.data, 0))
        recording.append("shift", [phase("shift")], table(values.ctypes.data, 1))
    recording.finish(threads)
    recording.replay()
    recording.replay(threads)
    assert values.tolist() == [199] * threads + [200] * threads
    assert recording.barriers == 150 and recording.launches == ("shift",) * 100


def test_set_patches_every_slot() -> None:
    first, second = np.zeros(8, np.int64), np.zeros(8, np.int64)
    recording = Recording("step")
    for _ in range(2):
        recording.append("dynamic", [phase("dynamic")], table(0, 0), {"units": [9], "out": (8,)})
    recording.append("dynamic", [phase("dynamic")], table(second.ctypes.data), {"units": [9]})
    recording.finish(2)
    assert recording.names == ("units", "out")
    recording.set("out", first.ctypes.data)
    for units in (3, 3, 5, 0, 8):
        recording.set("units", units)
        recording.replay()
    assert first.tolist() == [8, 8, 8, 4, 4, 2, 2, 2]
    assert second.tolist() == [4, 4, 4, 2, 2, 1, 1, 1]
    with pytest.raises(KeyError):
        recording.set("heads", 1)


def test_scratch_is_per_thread_and_may_be_shared() -> None:
    where = np.zeros(4, np.int64)
    small, large = Recording("small"), Recording("large")
    for recording, size in ((small, 100), (large, 10_000)):
        recording.append("noop", [phase("noop")], table(), scratch=64)
        recording.append("scratch", [phase("scratch")], table(where.ctypes.data), scratch=size)
    large.finish(4)
    large.replay()
    assert (np.diff(where) >= 10_000).all() and (where % 64 == 0).all()
    room = np.zeros(small.scratch_size(4), np.uint8)
    small.finish(4, room)
    small.replay(3)
    starts = where[:3] - room.ctypes.data
    assert [int(room[s : s + 8].view(np.int64)[0]) for s in starts] == [1, 2, 3]
    with pytest.raises(ValueError, match="scratch for 4 threads"):
        small.replay(5)
    with pytest.raises(ValueError, match="scratch of 8 B, need"):
        other = Recording("other")
        other.append("noop", [phase("noop")], table(), scratch=64)
        other.finish(1, np.zeros(8, np.uint8))


def test_misuse_is_reported() -> None:
    recording = Recording("step")
    with pytest.raises(ValueError, match="names slots"):
        recording.append("noop", [phase("noop")], table(), {"rows": [3]})
    with pytest.raises(ValueError, match="0 phases"):
        recording.append("noop", [], table())
    with pytest.raises(RuntimeError, match="not finished"):
        recording.replay()
    recording.finish(1)
    recording.replay()  # nothing in it
    with pytest.raises(RuntimeError, match="is finished"):
        recording.append("noop", [phase("noop")], table())


def test_replay_allocates_nothing() -> None:
    recording = Recording("decode")
    for _ in range(20):
        recording.append("count", [phase("noop")], table(), {"rows": [10]}, scratch=4096)
    recording.finish(2)

    def steps(count: int) -> None:
        for step in range(count):
            recording.set("rows", step)
            recording.replay()

    steps(100)
    gc.collect()
    tracemalloc.start()
    steps(10)
    before = tracemalloc.get_traced_memory()[0]
    steps(300)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 300  # bytes, over 300 steps


def test_fault_names_the_launch() -> None:
    recording = Recording("decode")
    done = np.zeros(2, np.int64)
    recording.append("rms_norm", [phase("noop"), phase("count")], table(done.ctypes.data))
    recording.append("softmax", [phase("noop"), phase("fault"), phase("noop")], table(0, 77))
    recording.append("matmul", [phase("count")], table(done.ctypes.data))
    recording.finish(2)
    text = r"kernel softmax \(number 2 of 3 in decode\) reported fault 1 \(detail 77\)"
    for _ in range(2):  # the fault is cleared by its report
        with pytest.raises(KernelFault, match=text):
            recording.replay()
    assert done.tolist() == [2, 2]


def test_cancel_from_another_thread() -> None:
    recording = busy_recording(500, 6_000_000)
    canceller = threading.Timer(0.1, recording.cancel)
    canceller.start()
    start = time.perf_counter()
    with pytest.raises(Cancelled, match=r"prefill was cancelled after \d+ of 500 kernels"):
        recording.replay()
    assert 0.09 < time.perf_counter() - start < 2
    canceller.join()
    recording.set("times", 1)
    recording.replay()  # the cancel was used up


def test_cancel_before_a_replay_stops_it_unless_taken_back() -> None:
    recording = busy_recording(10, 1)
    recording.cancel()
    with pytest.raises(Cancelled, match="after 0 of 10"):
        recording.replay()
    recording.cancel()
    recording.resume()
    recording.replay()


SIGINT_SCRIPT = """
import os, signal, sys, threading, time
from runtime_phases import phase, table
from terrazzo.errors import Cancelled
from terrazzo.runtime.recording import Recording
recording = Recording("prefill")
for _ in range(1000):
    recording.append("busy", [phase("busy")], table(0, 3_000_000), {"times": [9]})
recording.finish(2)
recording.set("times", 1); recording.replay(); recording.set("times", 3_000_000)
sent = []
def interrupt():
    time.sleep(0.2); sent.append(time.perf_counter()); os.kill(os.getpid(), signal.SIGINT)
def attempt(expected):
    sender = threading.Thread(target=interrupt); sender.start()
    try:
        recording.replay()
        print("ran to its end")
    except expected as error:
        took = time.perf_counter() - sent[-1]
        print(type(error).__name__, "soon" if took < 0.1 else took)
    sender.join()
attempt(KeyboardInterrupt)
attempt(KeyboardInterrupt)                      # and again
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
attempt(Cancelled)                              # a handler that does not raise
assert seen == [1]
python_handler = signal.getsignal(signal.SIGINT)
recording.set("times", 1)
recording.replay()                              # nothing sticks
os.kill(os.getpid(), signal.SIGINT); assert seen == [1, 1]   # Python's handler is back in place
recording.replay()
signal.signal(signal.SIGINT, signal.SIG_IGN)    # under nohup
os.kill(os.getpid(), signal.SIGINT); recording.replay()
print("done")
"""


def test_ctrl_c_stops_a_replay_within_100_ms() -> None:
    result = run_script(SIGINT_SCRIPT)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "KeyboardInterrupt soon",
        "KeyboardInterrupt soon",
        "Cancelled soon",
        "done",
    ]


def test_two_threads_replay_their_own_recordings() -> None:
    outs = [np.zeros(100, np.int64) for _ in range(2)]

    def work(out: np.ndarray) -> None:
        recording = Recording("step")
        for _ in range(10):
            recording.append("dynamic", [phase("dynamic")], table(out.ctypes.data, 100))
        recording.finish(3)
        for _ in range(100):
            recording.replay()

    workers = [threading.Thread(target=work, args=(out,)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((out == 1000).all() for out in outs)


def test_fork_during_another_threads_replay() -> None:
    result = run_script("""
import os, threading
import numpy as np
from runtime_phases import phase, table
from terrazzo.runtime.recording import Recording
out = np.zeros(50, np.int64)
recording = Recording("step")
for _ in range(50):
    recording.append("dynamic", [phase("dynamic")], table(out.ctypes.data, 50))
recording.finish(2)
stop = threading.Event()
def replays():
    while not stop.is_set(): recording.replay()
replayer = threading.Thread(target=replays); replayer.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        out[:] = 0
        recording.replay()
        os._exit(0 if (out == 50).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set(); replayer.join(); print("done")
""")
    assert (result.stdout, result.stderr) == ("done\n", "")


@pytest.mark.parametrize("threads", [1, 2])
def test_profile_adds_up(threads: int) -> None:
    recording = Recording("step")
    for times in (1000, 200_000):
        recording.append(f"busy{times}", [phase("busy"), phase("noop")], table(0, times))
    recording.append("busy1000", [phase("busy")], table(0, 1000))
    recording.finish(2)
    profile = min((recording.profile(threads) for _ in range(5)), key=lambda p: p.wall_s)
    assert [t.name for t in profile.launches] == ["busy1000", "busy200000", "busy1000"]
    assert [t.phases for t in profile.launches] == [2, 2, 1]
    assert profile.barriers == (5 if threads > 1 else 0) and profile.threads == threads
    assert list(profile.by_kernel()) == ["busy200000", "busy1000"]  # 100 times the work
    assert 0 < profile.body_s <= profile.wall_s
    assert profile.dispatch_s == profile.wall_s - profile.body_s
    assert all(t.seconds > 0 for t in profile.launches)
    recording.replay()  # no clock left behind
