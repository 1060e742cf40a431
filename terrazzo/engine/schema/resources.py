"""Where the subschemas of a document are, and what their references name."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from terrazzo.errors import GrammarError

ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not",
       "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
MAP = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties",
       "properties")  # fmt: skip

Scope = tuple[str, ...]  # the resources with dynamic anchors that were entered, outermost first


class Resources:
    """A schema and the resources in it. Nothing is fetched."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.words: set[str] = set()  # every keyword used
        self._roots: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[tuple[str, str], Any] = {}
        self._base: dict[int, str] = {}
        self._roots[""] = root
        self._walk(root, "")

    def _walk(self, node: Any, base: str) -> None:
        if not isinstance(node, dict) or id(node) in self._base:
            return
        self.words |= node.keys()
        name = node.get("$id", node.get("id"))
        if isinstance(name, str):
            base = urldefrag(urljoin(base, name)).url if name[:1] != "#" else base
            self._roots.setdefault(base, node)
        self._base[id(node)] = base
        for key, table in (("$anchor", self._anchors), ("$dynamicAnchor", self._dynamic)):
            if isinstance(node.get(key), str):
                self._anchors[base, node[key]] = node
                table[base, node[key]] = node
        for key in ONE:
            self._walk(node.get(key), base)
        for key in LIST:
            below = node.get(key)
            for sub in below if isinstance(below, list) else ():
                self._walk(sub, base)
        for key in MAP:
            below = node.get(key)
            for sub in below.values() if isinstance(below, dict) else ():
                self._walk(sub, base)

    def enter(self, node: Any, scope: Scope) -> Scope:
        """The scope in which `node` is read."""
        base = self._base.get(id(node), "")
        if base in scope or not any(base == of for of, _ in self._dynamic):
            return scope
        return (*scope, base)

    def named(self, node: dict[str, Any], ref: str, scope: Scope, dynamic: bool) -> Any:
        """What `ref` in `node` names. Raises GrammarError if that is not in the document."""
        base = self._base.get(id(node), "")
        absolute = base + ref if ref.startswith("#") or not ref else urljoin(base, ref)
        where, fragment = urldefrag(absolute)
        if where not in self._roots:
            raise GrammarError(
                f"the reference {ref!r} is to another document, and none is fetched",
                "put that document under $defs, with its $id",
            )
        if not fragment or fragment.startswith("/"):
            return self._follow(ref, self._roots[where], unquote(fragment))
        found = self._anchors.get((where, fragment))
        if found is None:
            raise GrammarError(f"the reference {ref!r} names no anchor of the document")
        if dynamic and (where, fragment) in self._dynamic:
            for outer in scope:
                if (outer, fragment) in self._dynamic:
                    return self._dynamic[outer, fragment]
        return found

    def _follow(self, ref: str, node: Any, pointer: str) -> Any:
        base = self._base.get(id(node), "")
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(part)] if isinstance(node, list) else node[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise GrammarError(f"the reference {ref!r} leads nowhere: no {part!r}") from None
            base = self._base.get(id(node), base)
        self._walk(node, base)  # it may stand where no keyword has schemas
        return node
