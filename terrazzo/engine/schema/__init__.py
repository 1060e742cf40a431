"""JSON Schemas as grammars: what a schema (draft 2020-12, and most of the older spellings) says
about each type of value, worked out as sets, then written as rules of llguidance's Lark.

Keys are written in the order in which the schema names them, others after them; a grammar cannot
tell whether two keys outside that list are the same. Known formats are enforced, as OpenAI's API
does; the standard makes them optional.
"""

from terrazzo.engine.schema.write import lark

__all__ = ["lark"]
