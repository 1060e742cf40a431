"""The walk of a program that numbers and checks share: phases, cores, loops, flags, instructions.

Groups run one after another: a core of a phase with one function, or a cube core with its vector
cores, which take turns where they wait for each other. Within a core everything happens in the
order of the program; what order the flags really give is for the checker to say. The walk itself
finds what it cannot go on from, and tells its `Watch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci import capacity
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.core import Core, Group
from terrazzo.targets.davinci.execute import Input
from terrazzo.targets.davinci.finding import Finding
from terrazzo.targets.davinci.memory import Memories, Memory, Region
from terrazzo.targets.davinci.program import Gm, Phase, Program
