"""Advice: what keeps a launch from being faster, in words that name the kernel's line.

A rule is a function of one case that yields what it has to say; none says anything where it costs
the launch little. The rules are in `rules_moves` and `rules_compute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from terrazzo.profile import rules_compute, rules_moves
from terrazzo.profile.case import Advice, Case
from terrazzo.profile.figures import Figures
from terrazzo.profile.listing import Listing
from terrazzo.profile.replay import Inputs
from terrazzo.targets.davinci.program import Program
from terrazzo.targets.davinci.timing.timeline import Timeline

RULES: tuple[Callable[[Case], Iterator[Advice]], ...] = (
    rules_moves.single_buffered,
    rules_moves.short_transfers,
    rules_moves.narrow_rows,
    rules_moves.unaligned_rows,
    rules_moves.same_address,
    rules_moves.store_bound,
    rules_compute.bank_conflicts,
    rules_compute.partial_fractals,
    rules_compute.few_repeats,
    rules_compute.few_cores,
    rules_compute.last_round,
    rules_compute.hand_over,
    rules_compute.launch_bound,
    rules_compute.near_the_roof,
)


def advice(
    timeline: Timeline, program: Program, figures: Figures, listing: Listing, inputs: Inputs
) -> tuple[Advice, ...]:
    """All that the rules say, what concerns most of the time first."""
    case = Case(timeline, program, figures, listing, inputs)
    said = [replace(a, text=a.text[0].upper() + a.text[1:]) for rule in RULES for a in rule(case)]
    return tuple(sorted(said, key=lambda a: -a.share))
