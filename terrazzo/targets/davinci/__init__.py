"""The DaVinci target: core programs for Ascend's cube and vector cores, timed and checked.

`program` is the structure that all parts read, at two levels; `expr` its scalars, `isa` the table
of instructions, `chips` the sizes, `printer` its text.

* `lowering`: tile IR -> buffer level
* `scheduling`: buffer level -> addresses and events
* `timing`: when each pipe does what
* `numbers`: the program run with numbers
* `checking`: what is wrong with it
"""
