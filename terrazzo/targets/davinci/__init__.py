"""The DaVinci target: core programs for Ascend's cube and vector cores, timed and checked.

* the program and its tables: program, expr, isa, chips, printer
* lowering, tile IR -> buffer level: lower, grid, order, split, levels, scalars, tiles, core, cross;
  cube, pages (cube cores); vector_core, vector, operands, arithmetic, casts, masks, bytes
* scheduling, buffer level -> addresses and events: schedule, expand, accesses, queues, placement,
  takeover
* timing: timing, constants, cost, vector_cost, traffic, throttle; trace, steps, terms, classes
  (what cores do); replay, steady (when); sums, timeline (what is reported)
* numbers: execute, unit, issue, items, memory, values, shapes, watch
* checking: check, plan, shadow, clocks, narrow, stuck, finding
"""
