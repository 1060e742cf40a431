"""The costs of a step mirror its recording, and add up to what is known of the model."""

from __future__ import annotations

import pytest

from terrazzo.engine.model import Model, load
from terrazzo.models.costs import step_costs


@pytest.fixture(scope="module", params=["int8", "f32"])
def model(request: pytest.FixtureRequest) -> Model:
    return load("smollm2", activations=request.param, context=64)


def costs_of(m: Model, tokens: int, start: int):
    int8 = m.activations == "int8"
    return step_costs(m.config, m.step.weights, m.step.cache.elements, int8, tokens, start)


def test_same_launches(model: Model) -> None:
    assert tuple(c.kernel for c in costs_of(model, 1, 0)) == model.step.recording.launches


def test_sums(model: Model) -> None:
    """Every matrix once a step, keys and values once; two operations a weight and token."""
    w, c = model.step.weights, model.config
    one, more = costs_of(model, 1, 40), costs_of(model, 7, 40)
    keys = 2 * c.layers * 41 * c.kv_heads * c.head_dim * model.step.cache.elements[0].itemsize
    assert sum(x.streamed for x in one) == pytest.approx(w.nbytes + keys, rel=1e-3)
    products = {"linear", "gated_linear"}
    per_token = sum(x.operations for x in one if x.kernel in products)
    assert per_token == 2 * sum(
        m.shape[0] * m.shape[1]
        for layer in w.layers
        for m in (*layer.qkv, layer.output, layer.gate, layer.up, layer.down)
    ) + 2 * w.head.shape[0] * w.head.shape[1]  # fmt: skip
    head = one[-1].operations
    assert sum(x.operations for x in more if x.kernel in products) == 7 * (per_token - head) + head
    pairs = sum(range(41, 48))
    attention = [x.operations for x in more if x.kernel == "attention_parts"]
    assert attention == [4 * pairs * c.heads * c.head_dim] * c.layers
