"""How much of the machine other processes take meanwhile, which its figures must say."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable


def others() -> float:
    """CPU seconds that processes other than this one and its children have used (of children: once
    they have ended)."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(x) for x in file.readline().split()[1:]]
    used = sum(ticks[:3]) + sum(ticks[5:7])  # user, nice, system, interrupts
    return used / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def calm(most_s: float) -> float:
    """Waits, at most so long, until other processes take less than a tenth of a core for half a
    second; how long that was."""
    start = time.perf_counter()
    while (waited := time.perf_counter() - start) < most_s:
        before = others()
        time.sleep(0.5)
        if others() - before < 0.05:
            break
    return waited


def undisturbed(measure: Callable[[], None], forget: Callable[[], None]) -> None:
    """One round: `measure` notes figures, `forget` takes them back. A round during which others
    took more than a tenth of a core is measured again, up to four times."""
    for left in range(4, -1, -1):
        before, start = others(), time.perf_counter()
        measure()
        share = (others() - before) / (time.perf_counter() - start)
        if share < 0.1 or left == 0:
            if share >= 0.1:
                print(
                    f"other processes take {share:.1f} cores: figures may be low", file=sys.stderr
                )
            return
        forget()
