"""Whether a grammar can be enforced, found out in a process of its own with bounds on time and
memory: a schema can be as much work as its author likes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections import OrderedDict

from terrazzo.engine.request import Grammar
from terrazzo.errors import GrammarError

SECONDS = 2.0
START_S = 20.0
KEPT = 256
MOST_KEPT = 1 << 16  # characters of an answer that is kept: 16 MiB of them all
MOST_LINE = 1 << 23  # bytes of an answer


class SchemaChecker:
    """One check at a time; the process starts with the first and again after one that was cut
    short."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._known: OrderedDict[bytes, tuple[str, str]] = OrderedDict()  # by hash

    async def check(self, grammar: Grammar) -> Grammar:
        """The grammar in the form that is least work to compile. Raises GrammarError with the
        reason if it cannot be enforced as it is."""
        name = hashlib.blake2b(f"{grammar.kind} {grammar.text}".encode(), digest_size=16).digest()
        async with self._turn:
            known = self._known.get(name)
            if known is None:
                known = await self._ask(grammar)
                if sum(map(len, known)) <= MOST_KEPT:
                    self._known[name] = known
                if len(self._known) > KEPT:
                    self._known.popitem(last=False)
        text, reason = known
        if reason:
            raise GrammarError(reason)
        return Grammar("lark", text) if text else grammar

    async def _ask(self, grammar: Grammar) -> tuple[str, str]:
        """(the grammar as Lark if it was written as such, why it cannot be enforced). Raises
        GrammarError if there is nobody to ask."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "terrazzo.serve.schema_worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MOST_LINE,
            )  # fmt: skip
            assert self._process.stdout is not None
            try:  # its imports are not the schema's
                await asyncio.wait_for(self._process.stdout.readline(), START_S)
            except TimeoutError:
                await self.close()
                raise GrammarError("the process that compiles grammars did not start") from None
        cannot = f"the {grammar.kind} cannot be enforced"
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps([grammar.kind, grammar.text]).encode() + b"\n")
            await stdin.drain()
            line = await asyncio.wait_for(stdout.readline(), SECONDS)
        except TimeoutError:
            await self.close()
            return "", f"{cannot}: it took more than {SECONDS:g} s to compile"
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line:
            await self.close()
            return "", f"{cannot}: compiling it took too much memory, or failed"
        text, reason = json.loads(line)
        return text, reason

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
