"""Noting kernel calls down in a recording instead of running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from terrazzo.lang.kernel import Kernel
from terrazzo.runtime.launch import prepare
from terrazzo.runtime.recording import Recording


class Recorder:
    """`add` takes a kernel's arguments as a call does; arrays must stay alive and keep their
    memory."""

    def __init__(self, name: str, threads: int) -> None:
        self.threads = threads
        self.recording = Recording(name)

    def add(self, kernel: Kernel, vary: Mapping[str, str], **args: Any) -> None:
        """`vary`: kernel dim -> name under which `Recording.set` changes its extent, between 0 and
        the arrays' own; dims the kernel does not have are passed over."""
        launch = prepare(kernel, (), args)
        dims: dict[str, list[int]] = {}
        for dim, name in vary.items():
            if dim in launch.dims:
                dims.setdefault(name, []).extend(launch.dims[dim])
        self.recording.append(
            kernel.name,
            launch.code.phases,
            launch.table,
            dims,
            scratch=launch.scratch,
            keep=(launch, args),
        )

    def finish(self) -> Recording:
        self.recording.finish(self.threads)
        return self.recording
