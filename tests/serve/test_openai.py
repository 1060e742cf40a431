"""The unchanged openai client, with strict validation of what it gets, on every endpoint."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

MODEL = "smollm2"
HELLO: list[Any] = [{"role": "user", "content": "Write one sentence about the sea."}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer",
                   "minimum": 0, "maximum": 120}},
    "required": ["name", "age"], "additionalProperties": False,
}  # fmt: skip
WEATHER: Any = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
                                         "days": {"enum": [1, 3, 7]}},
        "required": ["city", "days"], "additionalProperties": False}}}  # fmt: skip


def test_models(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "terrazzo"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        client.models.retrieve("gpt-4")


def test_chat_whole_and_streamed_are_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(messages=HELLO, max_tokens=24, **GREEDY)
    text = whole.choices[0].message.content
    assert text and whole.usage
    assert whole.usage.prompt_tokens + whole.usage.completion_tokens == whole.usage.total_tokens
    parts, usage, finish = [], None, None
    for chunk in client.chat.completions.create(
        messages=HELLO, max_tokens=24, stream=True, stream_options={"include_usage": True}, **GREEDY
    ):
        for choice in chunk.choices:
            parts.append(choice.delta.content or "")
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    assert "".join(parts) == text and finish == whole.choices[0].finish_reason
    assert usage and usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens


def test_a_seed_decides_and_choices_differ(client: OpenAI) -> None:
    def texts(seed: int, n: int) -> list[str | None]:
        got = client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=16, n=n, seed=seed, temperature=1.2
        )
        return [c.message.content for c in got.choices]

    three = texts(5, 3)
    assert len(set(three)) > 1 and texts(5, 3) == three
    assert texts(6, 1) == three[1:2]  # choice i is drawn with seed + i
    assert texts(-1, 1) != three[:1]


def test_stop_strings_cut_the_text(client: OpenAI, lenient: OpenAI) -> None:
    whole = client.completions.create(prompt="1 2 3 4 5 6", max_tokens=24, **GREEDY)
    text = whole.choices[0].text
    cut = text[6:9]
    stopped = client.completions.create(prompt="1 2 3 4 5 6", max_tokens=24, stop=cut, **GREEDY)
    assert stopped.choices[0].text == text[: text.index(cut)]
    assert stopped.choices[0].finish_reason == "stop"
    streamed = lenient.completions.create(
        prompt="1 2 3 4 5 6", max_tokens=24, stop=["never", cut], stream=True, **GREEDY
    )
    assert "".join(c.choices[0].text for c in streamed) == stopped.choices[0].text


def test_chat_log_probabilities(client: OpenAI) -> None:
    got = client.chat.completions.create(
        messages=HELLO, max_tokens=5, logprobs=True, top_logprobs=3, **GREEDY
    )
    logprobs = got.choices[0].logprobs
    assert logprobs and logprobs.content and len(logprobs.content) == 5
    assert "".join(t.token for t in logprobs.content) == got.choices[0].message.content
    for token in logprobs.content:
        assert token.top_logprobs[0].token == token.token and len(token.top_logprobs) == 3
        assert token.logprob <= 0 and bytes(token.bytes or ()).decode() == token.token


def test_completion_with_echo_scores_its_prompt(lenient: OpenAI) -> None:
    prompt = "The capital of France is"
    got = lenient.completions.create(prompt=prompt, max_tokens=3, echo=True, logprobs=2, **GREEDY)
    choice = got.choices[0]
    assert choice.text.startswith(prompt) and choice.logprobs
    tokens, values = choice.logprobs.tokens or [], choice.logprobs.token_logprobs or []
    assert "".join(tokens) == choice.text and len(tokens) == len(values)
    assert values[0] is None and all(v is not None and v <= 0 for v in values[1:])
    offsets = choice.logprobs.text_offset or []
    assert all(choice.text[o:].startswith(t) for o, t in zip(offsets, tokens, strict=True))


def test_completion_prompts_as_ids_and_several_at_once(client: OpenAI, http: Any) -> None:
    texts = ["Once upon a time", "The sea is"]
    ids = [http.post("/tokenize", json={"content": t}).json()["tokens"] for t in texts]
    assert http.post("/detokenize", json={"tokens": ids[0]}).json()["content"] == texts[0]
    one = [
        client.completions.create(prompt=t, max_tokens=8, **GREEDY).choices[0].text for t in texts
    ]
    both = client.completions.create(prompt=texts, max_tokens=8, n=2, **GREEDY)
    assert [c.text for c in both.choices] == [one[0], one[0], one[1], one[1]]
    assert [c.index for c in both.choices] == [0, 1, 2, 3]
    by_ids = client.completions.create(prompt=ids, max_tokens=8, **GREEDY)
    assert [c.text for c in by_ids.choices] == one


def test_bias_and_ignore_eos(client: OpenAI, http: Any) -> None:
    (word,) = http.post("/tokenize", json={"content": " sea", "add_special": False}).json()[
        "tokens"
    ]
    got = client.completions.create(
        prompt="The", max_tokens=4, logit_bias={str(word): 100}, **GREEDY
    )
    assert got.choices[0].text == " sea" * 4
    long = client.chat.completions.create(
        messages=[{"role": "user", "content": "Say yes."}], max_completion_tokens=60,
        extra_body={"ignore_eos": True}, **GREEDY
    )  # fmt: skip
    assert long.usage and long.usage.completion_tokens == 60


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_enforced(client: OpenAI, stream: bool) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    got: Any = client.chat.completions.create(
        messages=HELLO, max_tokens=60, response_format=form, stream=stream, **GREEDY
    )
    text = (
        "".join(c.choices[0].delta.content or "" for c in got)
        if stream
        else got.choices[0].message.content
    )
    value = json.loads(text)
    assert set(value) == {"name", "age"} and 0 <= value["age"] <= 120


def test_a_call_that_is_required_is_made(client: OpenAI) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        got = client.chat.completions.create(
            messages=[{"role": "user", "content": "How is the weather in Rome this week?"}],
            tools=[WEATHER], tool_choice=choice, max_tokens=60, **GREEDY  # type: ignore[arg-type]
        )  # fmt: skip
        (call,) = got.choices[0].message.tool_calls or []
        assert call.type == "function" and call.function.name == "get_weather"
        assert json.loads(call.function.arguments).keys() == {"city", "days"}
        assert got.choices[0].finish_reason == "tool_calls"


def test_a_call_is_streamed_in_pieces_and_goes_back(client: OpenAI) -> None:
    ask: list[Any] = [{"role": "user", "content": "How is the weather in Rome this week?"}]
    name, arguments, finish, pieces = "", "", None, 0
    for chunk in client.chat.completions.create(
        messages=ask, tools=[WEATHER], tool_choice="required", max_tokens=60, stream=True, **GREEDY
    ):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                assert call.function
                name += call.function.name or ""
                arguments += call.function.arguments or ""
                pieces += 1
    assert name == "get_weather" and json.loads(arguments)["days"] in (1, 3, 7)
    assert finish == "tool_calls" and pieces > 3
    bad = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{bad"}}
    history = [*ask, {"role": "assistant", "tool_calls": [bad]},
               {"role": "tool", "tool_call_id": "1", "content": "sunny"}]  # fmt: skip
    got = client.chat.completions.create(messages=history, tools=[WEATHER], max_tokens=8, **GREEDY)
    assert got.choices[0].finish_reason in ("length", "stop", "tool_calls")


def test_what_is_wrong_is_said(client: OpenAI) -> None:
    def refused(**more: Any) -> openai.BadRequestError:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **more})
        return caught.value

    assert refused(extra_body={"frobnicate": 1}).param == "frobnicate"
    assert refused(temperature=3).param == "temperature"
    assert refused(n=1000).param == "n"
    assert refused(messages=[]).param == "messages"
    assert refused(top_logprobs=2).param == "top_logprobs"
    over = refused(messages=[{"role": "user", "content": "sea " * 3000}])
    assert over.code == "context_length_exceeded" and "1,024" in over.message
    odd: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}}
    assert refused(response_format=odd).code == "invalid_schema"
    with pytest.raises(openai.NotFoundError, match="'gpt-4'"):
        client.chat.completions.create(model="gpt-4", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="no embeddings"):
        client.embeddings.create(model=MODEL, input="text")


def test_token_ids_are_numbers_as_json_has_them(http: Any) -> None:
    """2.0 is 2; what no token has is named by its field."""
    ask = {"model": MODEL, "max_tokens": 4, "temperature": 0}
    a, b = (http.post("/v1/completions", json={**ask, "prompt": p}).json()["choices"][0]["text"]
            for p in ([504, 565.0, 260], [504, 565, 260]))  # fmt: skip
    assert a == b
    assert http.post("/detokenize", json={"tokens": [504.0]}).status_code == 200
    bias = http.post("/v1/completions", json={**ask, "prompt": "a", "logit_bias": {"99999": 1}})
    assert bias.status_code == 400 and bias.json()["error"]["param"] == "logit_bias"


def test_stream_options_are_for_streams_also_when_empty(http: Any) -> None:
    body = {"model": MODEL, "messages": HELLO, "stream_options": {}}
    got = http.post("/v1/chat/completions", json=body)
    assert got.status_code == 400 and got.json()["error"]["param"] == "stream_options"
