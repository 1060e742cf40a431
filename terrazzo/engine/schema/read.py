"""What a place of a schema says, keyword by keyword (draft 2020-12; `definitions`, `dependencies`,
a list under `items`, of older drafts)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from terrazzo.engine.schema.algebra import Algebra, UnfinishedError
from terrazzo.engine.schema.regex import pattern
from terrazzo.engine.schema.resources import Resources, Scope
from terrazzo.engine.schema.sets import (
    ALL_KEYS,
    BOTTOM,
    NONE,
    TOP,
    WHOLE,
    Array,
    Contains,
    Keys,
    Number,
    Object,
    Record,
    Shape,
    any_of,
)
from terrazzo.engine.schema.words import count, is_list, list_of, map_of, number, string
from terrazzo.errors import GrammarError

NAMES = {"null": ("null",), "boolean": ("false", "true"), "string": ("string",),
         "array": ("array",), "object": ("object",), "number": ("number",),
         "integer": ("number",)}  # fmt: skip
REFUSED = ("$recursiveRef",)
BRANCHES = 6  # of an anyOf whose branches say what is evaluated


class Reader:
    """The shapes of a schema's places."""

    def __init__(self, root: Any) -> None:
        self.of = Resources(root)
        self.algebra = Algebra(lambda key: self.place(*key))
        self.marks = not self.of.words.isdisjoint({"unevaluatedItems", "unevaluatedProperties"})
        self._nodes: dict[int, Any] = {}
        self._shapes: dict[tuple[int, Scope], Shape | None] = {}

    def expression(self, node: Any, scope: Scope) -> int:
        """What the values in a part of a value lie in."""
        if isinstance(node, bool):
            return self.algebra.all_of(()) if node else NONE
        self._nodes[id(node)] = node
        return self.algebra.place((id(node), self.of.enter(node, scope)))

    def place(self, node_id: int, scope: Scope) -> Shape:
        return self.shape(self._nodes[node_id], scope)

    def shape(self, node: Any, scope: Scope) -> Shape:
        """What a schema holds, with what it evaluates."""
        if isinstance(node, bool):
            return TOP if node else BOTTOM
        if not isinstance(node, dict):
            raise GrammarError(f"a schema is an object, true or false, not {str(node)[:40]!r}")
        scope = self.of.enter(node, scope)
        key = (id(node), scope)
        self._nodes[id(node)] = node
        if key not in self._shapes:
            self._shapes[key] = None  # while it is read
            try:
                self._shapes[key] = self._read(node, scope)
            finally:
                if self._shapes[key] is None:
                    del self._shapes[key]
        known = self._shapes[key]
        if known is None:
            raise UnfinishedError("a schema refers to itself for the same value")
        return known

    def _read(self, node: dict[str, Any], scope: Scope) -> Shape:
        for word in REFUSED:
            if word in node:
                raise GrammarError(f"{word} cannot be enforced")
        a = self.algebra
        made = a.meet(self._types(node), self._values(node))
        for kind, record in (
            ("number", number(node)), ("string", string(node)),
            ("array", self._array(node, scope)), ("object", self._object(node, scope)),
        ):  # fmt: skip
            if record != WHOLE[kind]:
                made = a.meet(made, TOP | {kind: () if a.barren(record) else (record,)})
        for part in self._in_place(node, scope):
            made = a.meet(made, part)
        return self._unevaluated(node, scope, made)

    def _types(self, node: dict[str, Any]) -> Shape:
        if "type" not in node:
            return TOP
        named = node["type"] if isinstance(node["type"], list) else [node["type"]]
        made = dict(BOTTOM)
        for name in named:
            if not isinstance(name, str) or name not in NAMES:
                raise GrammarError(f"there is no type {name!r}")
            if name == "integer" and "number" not in named:
                made["number"] = (Number(whole=True),)
            else:
                made |= {t: TOP[t] for t in NAMES[name]}
        return made

    def _values(self, node: dict[str, Any]) -> Shape:
        made = TOP
        if "const" in node:
            made = self.algebra.shape(self.algebra.constant(node["const"]))
        if "enum" in node:
            listed = list_of(node, "enum")
            found = [self.algebra.shape(self.algebra.constant(v)) for v in listed]
            union = {t: tuple(dict.fromkeys(r for s in found for r in s[t])) for t in BOTTOM}
            made = self.algebra.meet(made, union)
        return made

    def _array(self, node: dict[str, Any], scope: Scope) -> Array:
        first = node.get("prefixItems", node["items"] if is_list(node, "items") else [])
        rest = node.get("additionalItems" if is_list(node, "items") else "items")
        if not isinstance(first, list):
            raise GrammarError("prefixItems is a list")
        items: list[tuple[int, int | None, int]] = [
            (i, i + 1, self.expression(sub, scope)) for i, sub in enumerate(first)
        ]
        seen: int | None = len(first)
        if rest is not None:
            items.append((len(first), None, self.expression(rest, scope)))
            seen = None
        contains: tuple[Contains, ...] = ()
        seen_in: tuple[int, ...] = ()
        if "contains" in node:
            inside = self.expression(node["contains"], scope)
            low, high = count(node, "minContains"), count(node, "maxContains")
            contains = (Contains(0, inside, 1 if low is None else low, high),)
            seen_in = (inside,)
        return Array(tuple(items), count(node, "minItems") or 0, count(node, "maxItems"),
                     contains, node.get("uniqueItems") is True,
                     seen if self.marks else 0, seen_in if self.marks else ())  # fmt: skip

    def _object(self, node: dict[str, Any], scope: Scope) -> Object:
        rules = [(Keys("name", k), self.expression(sub, scope))
                 for k, sub in map_of(node, "properties").items()]  # fmt: skip
        rules += [(Keys("match", pattern(p)), self.expression(sub, scope))
                  for p, sub in map_of(node, "patternProperties").items()]  # fmt: skip
        seen = any_of(*(k for k, _ in rules))
        if "additionalProperties" in node:
            others = self.expression(node["additionalProperties"], scope)
            rules.append((Keys("not", seen), others))
            seen = ALL_KEYS
        if "propertyNames" in node:
            named = self.expression(node["propertyNames"], scope)
            rules.append((Keys("not", Keys("in", named)), NONE))
        required = list_of(node, "required", [])
        if not all(isinstance(k, str) for k in required):
            raise GrammarError("required is a list of strings")
        least, most = count(node, "minProperties") or 0, count(node, "maxProperties")
        made = Object(tuple(rules), tuple(dict.fromkeys(required)), least, most)
        return replace(made, seen=seen) if self.marks else made

    def _in_place(self, node: dict[str, Any], scope: Scope) -> Iterator[Shape]:
        """The shapes of what applies to the same value."""
        a = self.algebra
        for word in ("$ref", "$dynamicRef"):
            if word in node:
                if not isinstance(node[word], str):
                    raise GrammarError(f"{word} is a string")
                found = self.of.named(node, node[word], scope, word == "$dynamicRef")
                yield self.shape(found, scope)
        for sub in list_of(node, "allOf", []):
            yield self.shape(sub, scope)
        if "anyOf" in node:
            yield self._any([self.shape(sub, scope) for sub in list_of(node, "anyOf")])
        if "oneOf" in node:
            yield self._one([self.shape(sub, scope) for sub in list_of(node, "oneOf")])
        if "not" in node:
            yield a.negate(self.shape(node["not"], scope))
        if "if" in node and (self.marks or "then" in node or "else" in node):
            yield self._when(self.shape(node["if"], scope),
                             self.shape(node.get("then", True), scope),
                             self.shape(node.get("else", True), scope))  # fmt: skip
        words = ("dependencies", "dependentSchemas", "dependentRequired")
        for key, sub in (pair for word in words for pair in map_of(node, word).items()):
            there = BOTTOM | {"object": (Object(required=(key,)),)}
            then = (TOP | {"object": (Object(required=tuple(sub)),)} if isinstance(sub, list)
                    else self.shape(sub, scope))  # fmt: skip
            yield self._when(there, then, TOP)

    def _any(self, shapes: list[Shape]) -> Shape:
        """What is in one of the shapes. Where it counts what a value's parts were evaluated by, a
        value in several is evaluated by all of them."""
        made: Shape = BOTTOM
        if self.marks and len(shapes) > BRANCHES:
            raise GrammarError(f"with unevaluated..., anyOf may have {BRANCHES} branches")
        for shape in shapes:
            joined = self.algebra.join(made, shape)
            if self.marks:
                joined = self.algebra.join(joined, self.algebra.meet(made, shape))
            made = joined
        return made

    def _one(self, shapes: list[Shape]) -> Shape:
        a = self.algebra
        made: Shape = BOTTOM
        for i, shape in enumerate(shapes):
            alone = shape
            for j, other in enumerate(shapes):
                if j != i and any(a.meet(alone, other).values()):
                    alone = a.meet(alone, a.negate(other))
            made = a.join(made, alone)
        return made

    def _when(self, condition: Shape, then: Shape, otherwise: Shape) -> Shape:
        a = self.algebra
        return a.join(a.meet(condition, then), a.meet(a.negate(condition), otherwise))

    def _unevaluated(self, node: dict[str, Any], scope: Scope, shape: Shape) -> Shape:
        if not self.marks:
            return shape
        if "unevaluatedItems" in node:
            rest = self.expression(node["unevaluatedItems"], scope)
            shape = shape | {"array": tuple(self._rest_of_items(r, rest) for r in shape["array"])}
        if "unevaluatedProperties" in node:
            rest = self.expression(node["unevaluatedProperties"], scope)
            shape = shape | {"object": tuple(_rest_of_keys(r, rest) for r in shape["object"])}
        kept = lambda rs: tuple(r for r in rs if not self.algebra.barren(r))  # noqa: E731
        return shape | {t: kept(shape[t]) for t in ("array", "object")}

    def _rest_of_items(self, record: Record, rest: int) -> Record:
        assert isinstance(record, Array)
        if record.seen is None:
            return record
        inside = self.algebra.any_of((rest, *record.seen_in))
        items = (*record.items, (record.seen, None, inside))
        return replace(record, items=items, seen=None)


def _rest_of_keys(record: Record, rest: int) -> Record:
    assert isinstance(record, Object)
    rules = (*record.rules, (Keys("not", record.seen), rest))
    return replace(record, rules=rules, seen=ALL_KEYS)
