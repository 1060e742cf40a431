"""What the endpoints share: the engine's supervisor, the tokenizer, the template, the figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from terrazzo.models.chat import ChatTemplate
from terrazzo.models.tokenizer import Tokenizer
from terrazzo.serve.metrics import Metrics
from terrazzo.serve.schemas import SchemaChecker
from terrazzo.serve.supervisor import Supervisor


@dataclass
class Service:
    """`name`: the model's, as clients give it. `context`: tokens of a sequence at most."""

    name: str
    supervisor: Supervisor
    tokenizer: Tokenizer
    chat: ChatTemplate | None
    schemas: SchemaChecker
    metrics: Metrics
    api_key: str | None = None
    cors: str | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False

    @property
    def context(self) -> int:
        return self.supervisor.facts.get("context", 0)

    @property
    def facts(self) -> dict[str, Any]:
        return self.supervisor.facts
