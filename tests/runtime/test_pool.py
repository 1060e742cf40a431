"""The worker pool: all threads run all phases, barriers hold, callers take turns, forks, exits."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time

import numpy as np
import pytest
from runtime_phases import phase, run_script, table

from terrazzo.errors import OptionError, PlatformError
from terrazzo.targets.cpu import codegen, pool
from terrazzo.targets.cpu.futex import system_ir
from terrazzo.targets.cpu.pool_ir import pool_ir


def program(name: str, tables: list[np.ndarray]) -> pool.Program:
    return pool.Program([(phase(name), t.ctypes.data) for t in tables], keep=tables)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7])
def test_every_thread_runs_every_phase(threads: int) -> None:
    done = np.zeros(8, np.int64)
    tables = [table(done.ctypes.data) for _ in range(50)]
    steps = program("count", tables)
    for _ in range(20):
        assert pool.shared().run(steps, threads) == 50 << 2 | pool.DONE
    assert done.tolist() == [1000] * threads + [0] * (8 - threads)
    assert all(t[3] == 0 for t in tables)  # work counters rewound


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("spin_us", [0.0, 50.0])
def test_barrier_orders_phases(threads: int, spin_us: float) -> None:
    own = pool.Pool(threads, barrier_spin_us=spin_us, idle_spin_us=spin_us)
    values = np.zeros(2 * threads, np.int64)
    tables = [table(values.ctypes.data, i % 2) for i in range(200)]
    assert own.run(program("shift", tables), threads) == 200 << 2
    assert values.tolist() == [199] * threads + [200] * threads
    own.close()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_dynamic_units_are_done_once(threads: int) -> None:
    units = np.zeros(1000, np.int64)
    t = table(units.ctypes.data, 1000)
    steps = program("dynamic", [t, t, t])
    pool.shared().run(steps, threads)
    pool.shared().run(steps, threads)
    assert (units == 6).all()


def test_thread_count_may_change_from_run_to_run() -> None:
    done = np.zeros(8, np.int64)
    steps = program("count", [table(done.ctypes.data)])
    for threads in [4, 1, 2, 3, 2, 4, 1] * 20:
        pool.shared().run(steps, threads)
    assert done[:4].tolist() == [140, 100, 60, 40]


def test_empty_program_and_bad_thread_counts() -> None:
    assert pool.shared().run(pool.Program([]), 2) == pool.DONE
    for bad in (0, -1, 257):
        with pytest.raises(OptionError, match=f"threads is {bad}; choose 1 to 256"):
            pool.shared().run(program("noop", [table()]), bad)


@pytest.mark.parametrize("may_shrink", [True, False])
def test_a_late_thread_is_left_out(may_shrink: bool) -> None:
    """While one thread comes late to every barrier, the caller runs alone but for trials; soon
    after that has ended both run (how soon: benchmarks/contention.py; here a core may be taken)."""
    done = np.zeros(2, np.int64)
    t = table(done.ctypes.data, 5000)
    steps = pool.Program([(phase("laggard"), t.ctypes.data)] * 3, keep=t, may_shrink=may_shrink)

    def seconds(length: float) -> np.ndarray:
        done[:] = 0
        end = time.perf_counter() + length
        while time.perf_counter() < end:
            assert pool.shared().run(steps, 2) == 3 << 2
        return done.copy()

    first, second = seconds(0.5)
    assert second < first / 5 if may_shrink else second == first
    t[9] = 0
    for _ in range(20):
        seconds(0.5)
        first, second = seconds(0.2)
        if second > 0.7 * first:
            break
    else:
        pytest.fail(f"of {first} runs the second thread was in {second}")


def test_python_threads_take_turns() -> None:
    counts = [np.zeros(4, np.int64) for _ in range(3)]

    def work(mine: np.ndarray) -> None:
        steps = program("count", [table(mine.ctypes.data) for _ in range(10)])
        for _ in range(200):
            assert pool.shared().run(steps, 2) == 10 << 2

    callers = [threading.Thread(target=work, args=(c,)) for c in counts]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [c.tolist() for c in counts] == [[2000, 2000, 0, 0]] * 3


def test_forked_child_makes_its_own_workers() -> None:
    result = run_script("""
import os, threading
import numpy as np
from runtime_phases import phase, table
from terrazzo.targets.cpu import pool
done = np.zeros(4, np.int64)
t = table(done.ctypes.data)
steps = pool.Program([(phase("count"), t.ctypes.data)] * 20)
stop = threading.Event()
def hammer():
    mine = np.zeros(4, np.int64); u = table(mine.ctypes.data)
    other = pool.Program([(phase("count"), u.ctypes.data)] * 20)
    while not stop.is_set(): pool.shared().run(other, 2)
hammering = threading.Thread(target=hammer); hammering.start()
for i in range(10):
    pool.shared().run(steps, 3)
    child = os.fork()
    if child == 0:
        assert pool.shared().workers == 1
        pool.shared().run(steps, 3)
        grandchild = os.fork()
        if grandchild == 0:
            pool.shared().run(steps, 2); os._exit(0)
        assert os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if done.tolist() == [20 * (i + 2)] * 3 + [0] else 1)
    assert os.waitpid(child, 0)[1] == 0, i
stop.set(); hammering.join()
print(done.tolist(), pool.shared().workers)
""")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["[200,", "200,", "200,", "0]", "3"]


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "daemon-busy"])
def test_exit_does_not_hang(busy: bool) -> None:
    start = time.perf_counter()
    result = run_script(f"""
import threading, time
from runtime_phases import phase, table
from terrazzo.targets.cpu import pool
t = table(0, 10_000_000)
steps = pool.Program([(phase("busy"), t.ctypes.data)] * (2000 if {busy} else 1))
pool.shared().run(pool.Program([(phase("noop"), t.ctypes.data)]), 4)
caller = threading.Thread(target=pool.shared().run, args=(steps, 2), daemon=True)
caller.start()
time.sleep(0.05)
""")
    assert (result.returncode, result.stderr) == (0, "")
    assert time.perf_counter() - start < 15


def test_idle_workers_sleep() -> None:
    pool.shared().run(program("noop", [table()]), 4)
    time.sleep(0.05)
    before = os.times()
    time.sleep(0.3)
    after = os.times()
    assert (after.user - before.user) + (after.system - before.system) < 0.1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_worker_that_is_woken_keeps_off_its_callers_core() -> None:
    """And has its CPUs back when it runs. The caller is bound to one: else it may be moved."""
    before = set(os.listdir("/proc/self/task"))
    own = pool.Pool(2, idle_spin_us=0)
    where = np.zeros(2, np.int64)
    steps = program("where", [table(where.ctypes.data)])
    own.run(steps, 2)
    everywhere = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everywhere)})
        for _ in range(50):
            time.sleep(0.002)
            own.run(steps, 2)
            assert where[0] == min(everywhere) != where[1]
    finally:
        os.sched_setaffinity(0, everywhere)
    started = map(int, set(os.listdir("/proc/self/task")) - before)
    assert [os.sched_getaffinity(t) for t in started] == [everywhere]
    own.close()


def test_cpus_that_the_user_chose_are_kept() -> None:
    """A worker bound to one CPU, the caller's or not, stays there."""
    script = """
import os, time, numpy as np
from runtime_phases import phase, table
from terrazzo.targets.cpu import pool
before = set(os.listdir("/proc/self/task"))
own, where = pool.Pool(2, idle_spin_us=0), np.zeros(2, np.int64)
t = table(where.ctypes.data)
steps = pool.Program([(phase("where"), t.ctypes.data)], keep=t)
own.run(steps, 2)
(worker,) = map(int, set(os.listdir("/proc/self/task")) - before)
only = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(worker, only)
for _ in range(20):
    time.sleep(0.002)
    own.run(steps, 2)
    assert where[1] in only, where
print(os.sched_getaffinity(worker) == only)
"""
    assert run_script(script).stdout.strip() == "True"


def test_workers_leave_signals_to_python() -> None:
    pool.shared().run(program("noop", [table()]), 3)
    masks = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        masks.append(int(fields["SigBlk"], 16))
    sigint = 1 << 1
    assert sum(bool(mask & sigint) for mask in masks) >= 2


def test_unsupported_systems_are_one_clear_error() -> None:
    for system, machine in (("darwin", "arm64"), ("linux", "riscv64"), ("win32", "AMD64")):
        with pytest.raises(PlatformError, match=f"does not run on {system} {machine}; it runs on"):
            system_ir(system, machine)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_pool_code_generates_for_both_machines(machine: str) -> None:
    class Generic:
        name, cpu, features = "generic", "generic", ""

    text = codegen.assembly(pool_ir(machine), Generic(), f"{machine}-linux-gnu")
    assert {"x86_64": "rdtsc", "aarch64": "CNTVCT_EL0"}[machine].lower() in text.lower()
    assert {"x86_64": "$202", "aarch64": "#98"}[machine] in text
    assert platform.machine() in ("x86_64", "aarch64")


def test_dispatch_latency_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure, not a bar: shared machines are noisy. The bound catches only a lost wake-up."""
    one, many = program("noop", [table()]), program("noop", [table()] * 1000)

    def median_us(steps: pool.Program, threads: int, calls: int, each: int) -> float:
        times = []
        for _ in range(15):
            start = time.perf_counter()
            for _ in range(calls):
                pool.shared().run(steps, threads)
            times.append((time.perf_counter() - start) / (calls * each) * 1e6)
        return statistics.median(times)

    with capsys.disabled():
        for threads in (1, 2):
            dispatch, barrier = median_us(one, threads, 500, 1), median_us(many, threads, 1, 1000)
            print(f"\n  {threads}T: dispatch {dispatch:.2f} µs, barrier {barrier:.3f} µs", end="")
            assert dispatch < 1000 and barrier < 1000
