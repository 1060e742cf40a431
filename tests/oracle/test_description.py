"""schemathesis against a running server's own description: thousands of requests that keep to it,
or break it on purpose, over every endpoint. Each has to be answered as described, and none by a
fault of the server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.generation import GenerationMode
from soak.process import Server

EXAMPLES = {"post": 260, "get": 50}  # of each operation and each mode
LEAST = 2000
CHECKS = [checks.not_a_server_error, checks.status_code_conformance,
          checks.content_type_conformance, checks.response_headers_conformance,
          checks.response_schema_conformance]  # fmt: skip
# What no description of a request can rule out: how long a prompt is in tokens, which of the
# schemas that JSON Schema allows can be enforced, which tools there are to choose from, which ids
# a vocabulary has (keys of an object have no maximum), how many answers all prompts make.
UNDESCRIBED = ("context_length_exceeded", "invalid_schema")
UNDESCRIBED_FIELDS = ("tool_choice", "response_format", "logit_bias", "n")


@pytest.fixture(scope="module")
def url(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "log"
    server = Server(log, "--context", "2048", "--parallel", "8").start()
    yield f"http://127.0.0.1:{server.port}"
    assert server.stop() == 0
    said = log.read_text()
    assert "Traceback" not in said and "starting it again" not in said


def short(case: Case) -> Case:
    """The same request for few tokens and answers. What is wrong in it stays wrong."""
    body = case.body
    if case.operation.path.startswith("/v1/") and isinstance(body, dict):
        for name, most in (("max_tokens", 3), ("max_completion_tokens", 3), ("n", 2)):
            value = body.get(name)
            if type(value) in (int, float) and value > most and value == int(value) < 2**31:
                body[name] = most
        if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            body["max_tokens"] = 3
        wait = body.get("timeout")
        if type(wait) in (int, float) and 0.001 <= wait < 30:
            body["timeout"] = 30  # a 504 is what a shorter one is for
    return case


def excused(case: Case, response: Any) -> bool:
    """Whether a request that keeps to the description may be refused all the same."""
    error = json.loads(response.content)["error"] if response.status_code == 400 else {}
    return error.get("code") in UNDESCRIBED or error.get("param") in UNDESCRIBED_FIELDS


def probe(
    operation: Any, mode: GenerationMode, url: str, counts: Counter[str], wrong: dict[str, str]
) -> None:
    """Sends an operation's requests; `wrong` gets the first of each kind of fault."""
    session = requests.Session()

    @seed(0)
    @settings(max_examples=EXAMPLES[operation.method], database=None, deadline=None,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode).map(short))
    def ask(case: Case) -> None:
        response = case.call(base_url=url, session=session, timeout=60)
        counts[f"{operation.label} {mode.value} {response.status_code}"] += 1
        more = [checks.negative_data_rejection]
        if response.status_code == 413:  # a body of megabytes: described, but schemathesis does
            more = []  # not count it among refusals
        elif mode.is_positive:
            more = [] if excused(case, response) else [checks.positive_data_acceptance]
        try:
            case.validate_response(response, checks=[*CHECKS, *more])
        except (FailureGroup, Failure) as error:
            for one in getattr(error, "exceptions", [error]):
                kind = f"{operation.label} {mode.value}: {type(one).__name__}"
                text = f"{json.dumps(case.body, default=str)[-3000:]} -> {response.text[:500]}"
                if len(text) < len(wrong.get(kind, text + " ")):
                    wrong[kind] = f"{text}"

    ask()


def test_every_request_is_answered_as_described(url: str) -> None:
    description = schemathesis.openapi.from_url(f"{url}/openapi.json")
    counts: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    for found in description.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:
            if mode.is_positive or operation.body:  # nothing is wrong about a GET without a field
                probe(operation, mode, url, counts, wrong)
    print(f"{sum(counts.values()):,} requests", *sorted(counts.items()), sep="\n")
    assert not wrong, "\n".join(f"{k}\n  {v}" for k, v in wrong.items())
    assert sum(counts.values()) >= LEAST
