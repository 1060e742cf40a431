"""A report on a terminal: what a person reads first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from terrazzo.profile import colours, names, picture
from terrazzo.profile.occupancy import Room
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.program import CoreKind

BAR = 24  # characters; a third of them on a narrow terminal
NARROW = 80  # columns: below, tables leave something out
ROWS = {"L1": 8, "UB": 12, "L0A": 4, "L0B": 4, "L0C": 4}  # of a space's picture
SHOWN = 0.001  # of the time, from which on a line's cycles are shown


def show(report: Report, console: Console) -> None:
    """Prints all of the report."""
    for part in parts(report, console.width):
        console.print(part)


def parts(report: Report, width: int) -> Iterator[RenderableType]:
    """The sections in order, for a terminal of `width` columns."""
    yield _head(report)
    for kind in report.timeline.cores:
        yield _section(f"{kind} cores: {report.timeline.cores[kind]} of"
                       f" {report.timeline.chip.cores(kind)}, a core's pipes",
                       _pipes(report, kind, width))  # fmt: skip
    yield _section("memory traffic, all cores", _traffic(report, width))
    end = picture.window(report.rooms)
    rooms = [_room(r, report, end, max(24, min(width - 14, 100))) for r in report.rooms]
    if rooms:
        us, all_us = (
            end / report.timeline.chip.mhz,
            report.timeline.cycles / report.timeline.chip.mhz,
        )
        part = f"the first {us:.3g} of {all_us:.3g} µs" if us < 0.99 * all_us else "over time"
        yield _section(f"what lies where on one core, {part}", *rooms)
    yield _section("advice", _advice(report))
    yield _section("source", _source(report))


def _section(title: str, *body: RenderableType) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold"), *(Padding(b, (0, 0, 0, 2)) for b in body))


def _head(report: Report) -> RenderableType:
    t = report.timeline
    named = ", ".join(f"{n} {v}" for n, v in report.arguments.items())
    head = Text(f"{report.program.name}", style="bold").append(f" on {t.chip.name}: ", style="dim")
    head.append(report.headline, style="bold")
    more = (
        f"{report.figures.why}\n{t.cycles:,.0f} cycles at {t.chip.mhz:,} MHz and"
        f" {t.launch_us:.1f} µs of launch; {report.plan} plan"
    )
    return Group(head, *([Text(named, style="dim")] if named else []), Text(more, style="dim"))


def bar(share: float, colour: str, width: int) -> Text:
    """A bar of `width` characters, filled to `share`."""
    full = min(width, round(share * width))
    return Text("█" * full, style=colour).append("░" * (width - full), style="dim")


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, show_header=any(columns), header_style="dim", padding=(0, 2, 0, 0))
    for at, title in enumerate(columns):
        table.add_column(title, justify="right" if at in right else "left", no_wrap=True)
    return table


def _pipes(report: Report, kind: CoreKind, width: int) -> Table:
    columns = ("pipe", "ratio", "", "time", "waits for")
    wide = len(columns) if width >= NARROW else 4
    bars = BAR if width >= NARROW else BAR // 3
    table = _table(*columns[:wide], right=(1, 3))
    for pipe in names.PIPES[kind]:
        use = report.timeline.pipe(kind, pipe)
        if use is None:
            continue
        name = names.prefix(kind, pipe)
        waits = sorted(use.waits.items(), key=lambda kv: -kv[1])
        shares = [(p, w / report.timeline.cycles) for p, w in waits]
        said = ", ".join(f"{names.spoken(p)} {100 * w:.0f} %" for p, w in shares if w >= 0.01)
        ratio = report.figures.pipes[f"{name}_ratio"]
        us = report.figures.times[f"{name}_time(us)"]
        row = (
            f"{name}_ratio", f"{ratio:.3f}", bar(ratio, colours.PIPE[pipe], bars), f"{us:,.1f} µs",
            said,
        )  # fmt: skip
        table.add_row(*row[:wide])
    if kind == "vector" and report.figures.conflict_ratio:
        lost = report.figures.conflict_ratio
        table.add_row("bank conflicts", f"{lost:.3f}", bar(lost, "red", bars))
    return table


def _traffic(report: Report, width: int) -> Table:
    bars = BAR if width >= NARROW else BAR // 3
    table = _table("path", "bytes", "rate", "of peak", "", right=(1, 2, 3))
    for x in report.figures.traffic:
        table.add_row(
            x.path,
            names.nbytes(x.bytes),
            names.rate(x.gb_s),
            f"{100 * x.share:.0f} %" if x.peak_gb_s else "",
            bar(x.share, colours.PIPE["MTE2"], bars) if x.peak_gb_s else "",
        )
    return table


def _room(room: Room, report: Report, end: float, columns: int) -> RenderableType:
    """The picture of one space, its axis in KiB as far as the plan goes, and its letters."""
    rows = ROWS[room.space]
    buffers = room.buffers
    tint = colours.tiles(report.rooms)
    colour = {b: tint[b.tile or b.name] for b in buffers}
    named = picture.letters(room)
    us = end / report.timeline.chip.mhz
    out = Text(f"{room.space}: {picture.summary(room)}\n")
    for at, line in enumerate(picture.grid(room, rows, columns, end)):
        top = names.nbytes(picture.top(room) * (rows - at) // rows)
        out.append(f"{top:>8} ", style="dim")
        for character, buffer in line:
            style = f"black on {colour[buffer]}" if buffer else "dim"
            out.append(character, style=style)
        out.append("\n")
    ruler = f"{us:.3g} µs"
    out.append(f"{'0':>10}{ruler:>{columns - 1}}\n", style="dim")
    for buffer in buffers:
        out.append(f"         {named[buffer]} ", style=f"bold {colour[buffer]}")
        slots = f"{buffer.slots} × " if buffer.slots > 1 else ""
        out.append(f"{buffer.tile or buffer.name}", style=colour[buffer])
        last = buffer is buffers[-1] and room is report.rooms[-1]
        out.append(f"  {slots}{names.nbytes(buffer.bytes)}{'' if last else chr(10)}", style="dim")
    return out


def _advice(report: Report) -> RenderableType:
    if not report.advice:
        return Text("nothing stands out", style="dim")
    table = _table("", "")
    table.columns[1].no_wrap = False
    for number, a in enumerate(report.advice, 1):
        table.add_row(Text(f"{number}.", style="bold"), a.text)
    return table


def _source(report: Report) -> RenderableType:
    """Lines that are too long are cut, not wrapped."""
    hot = [x for x in report.lines if x.share >= SHOWN]
    cycles = max([6, *(len(f"{x.cycles:,.0f}") for x in hot)])
    pipes = max([4, *(len(x.pipe) for x in hot)])
    out = [Text(f"{'line':>5} {'cycles':>{cycles}}  {'time':>6}  {'pipe':<{pipes}}", style="dim")]
    for x in report.lines:
        row = Text(f"{x.number:>5} ", style="dim", no_wrap=True, overflow="ellipsis")
        if x.share >= SHOWN:
            row.append(f"{x.cycles:>{cycles},.0f}  ", style="not dim")
            row.append(f"{100 * x.share:>4.1f} %  ", style="bold not dim")
            pipe = names.of_column(x.pipe)
            row.append(f"{x.pipe:<{pipes}}  ", style=f"{colours.PIPE[pipe]} not dim")
            row.append(x.text, style="not dim")
        else:
            row.append(" " * (cycles + pipes + 12)).append(x.text)
        out.append(row)
    return Group(*out)
