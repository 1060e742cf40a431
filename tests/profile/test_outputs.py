"""What is written for people and for other programs: terminal, trace, tables, page."""

from __future__ import annotations

import csv as plain
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from machine import simulate
from programs import CHIP, GEMM_LISTING, gemm
from rich.console import Console

from terrazzo.profile import csv, html, terminal, trace
from terrazzo.profile.report import Report, report

Make = Callable[..., Report]


@pytest.fixture(scope="module")
def mixed() -> Report:
    program = gemm(handed=True)
    return report(
        simulate(program, CHIP), program, GEMM_LISTING, arguments={"a": "f16[1024, 2048]"}
    )


def shown(r: Report, width: int = 100) -> str:
    out = io.StringIO()
    terminal.show(r, Console(file=out, width=width, force_terminal=False))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_terminal(mixed: Report, width: int) -> None:
    text = shown(mixed, width)
    assert mixed.headline.split(",")[0] in text
    for name in ("aic_mac_ratio", "aic_mte2_ratio", "aiv_vec_ratio", "aiv_mte3_ratio"):
        assert name in text
    for word in ("GM->L1", "HBM", "L0C: 128 KiB of 128 KiB", "advice", "acc += "):
        assert word in text
    assert max(map(len, text.splitlines())) <= width


def test_terminal_has_the_source_with_cycles(gemm_report: Make) -> None:
    text = shown(gemm_report())
    line = next(x for x in text.splitlines() if "acc +=" in x)
    assert re.match(r"\s+16\s+[\d,]+\s+\d+\.\d %\s+aic_mte2\s+acc \+=", line), line


def test_trace_is_in_the_trace_event_format(mixed: Report) -> None:
    """Every slice lies on a named thread, slices of a thread nest or follow, flows come in pairs
    that go forward and bind to slices, and counters end at nothing held."""
    text = json.dumps(trace.trace(mixed), allow_nan=False)
    events = json.loads(text)["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {"cube core 0", "vector core 0"}
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(mixed.timeline.spans)
    lanes = defaultdict(list)
    for e in slices:
        assert (e["pid"], e["tid"]) in named and e["dur"] > 0 and e["ts"] >= 0
        assert isinstance(e["name"], str) and e["args"]["cycles"] > 0
        lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(spans, spans[1:], strict=False))
    loads = [e for e in slices if e["name"] == "nd2nz"]
    assert loads and all(e["args"]["line"] == 16 and e["args"]["bytes"] > 0 for e in loads)
    flows = defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            flows[e["id"]][e["ph"]] = e
    assert flows
    for pair in flows.values():
        assert pair.keys() == {"s", "f"} and pair["f"]["bp"] == "e"
        assert pair["s"]["ts"] <= pair["f"]["ts"] + 1e-9
        for e in pair.values():
            near = lanes[e["pid"], e["tid"]]
            assert any(a - 1e-9 <= e["ts"] <= b + 1e-9 for a, b in near)
    last = {e["name"]: e["args"]["bytes"] for e in events if e["ph"] == "C"}
    assert last == dict.fromkeys((f"{s} bytes held" for s in ("L1", "L0A", "L0B", "L0C", "UB")), 0)
    assert {e["ph"] for e in events} == set("MXsfC")


def test_trace_of_reads_that_overlap(gemm_report: Make) -> None:
    """A pipe takes the next read while the last one's data is on its way."""
    r = gemm_report()
    spans = tuple(replace(s, end=s.end + 340) if s.pipe == "MTE2" else s for s in r.timeline.spans)
    events = trace.trace(replace(r, timeline=replace(r.timeline, spans=spans)))["traceEvents"]
    loads = [e for e in events if e["ph"] == "X" and e["name"] == "nd2nz"]
    loads.sort(key=lambda e: e["ts"])
    for a, b in zip(loads, loads[1:], strict=False):
        assert a["dur"] > 0 and a["ts"] + a["dur"] <= b["ts"] + 1e-9
    assert max(e["args"]["cycles"] / 1800 - e["dur"] for e in loads) == pytest.approx(340 / 1800)


def test_tables(mixed: Report, tmp_path: Path) -> None:
    paths = csv.write(mixed, tmp_path / "new" / "folder")
    assert {p.stem for p in paths} == {
        "OpBasicInfo", "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB",
        "L2Cache", "ResourceConflictRatio",
    }  # fmt: skip
    rows = {p.stem: list(plain.DictReader(p.open(encoding="utf-8"))) for p in paths}
    cube, vector = rows["PipeUtilization"]
    assert (cube["block_id"], vector["block_id"]) == ("24", "48")
    assert float(cube["aic_mac_ratio"]) == pytest.approx(mixed.figures.pipes["aic_mac_ratio"], 1e-5)
    assert cube["aiv_vec_ratio"] == "NA" and float(vector["aiv_vec_ratio"]) > 0
    assert float(rows["OpBasicInfo"][0]["Task Duration(us)"]) == pytest.approx(
        mixed.timeline.us, 1e-5
    )
    cube, vector = rows["Memory"]
    moved = mixed.timeline.traffic
    assert float(cube["GM_to_L1_datas(KB)"]) == pytest.approx(moved["GM->L1"] / 1024)
    assert float(vector["UB_to_GM_datas(KB)"]) == pytest.approx(moved["UB->GM"] / 1024)
    assert float(rows["L2Cache"][0]["aic_total_hit_rate(%)"]) == pytest.approx(50)
    assert float(rows["ArithmeticUtilization"][0]["aic_cube_fops"]) * 24 == pytest.approx(
        mixed.timeline.flops, 1e-5
    )


class _Page(HTMLParser):
    """Collects what a page refers to, its ids, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: set[str] = set()
        self.scripts: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.references += [v for k in ("src", "href") if (v := given.get(k))]
        self.ids |= {v for v in [given.get("id")] if v}
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")
        assert tag not in ("link", "iframe", "object", "img")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data


def parsed(text: str) -> tuple[_Page, dict]:
    page = _Page()
    page.feed(text)
    data, code = page.scripts
    assert "data" in page.ids and code.strip()
    return page, json.loads(data)


def test_page_stands_alone(mixed: Report) -> None:
    text = html.page(mixed)
    page, data = parsed(text)
    assert not page.references and "@import" not in text and "url(" not in text
    addresses = re.findall(r"https?://[^\"'\s]+", text)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    code = page.scripts[1]
    used = set(re.findall(r'\bat\("([\w-]+)"\)', code))
    assert used <= page.ids | {"tip", "data"}, used - page.ids
    assert "fetch(" not in code and "XMLHttpRequest" not in code and "import(" not in code


def test_page_data(mixed: Report) -> None:
    _, data = parsed(html.page(mixed))
    lanes = {(x["kind"], x["label"]): x for x in data["lanes"]}
    assert set(lanes) == {
        ("cube", "Cube"), ("cube", "MTE1"), ("cube", "MTE2"), ("cube", "FixPipe"),
        ("vector", "Vector"), ("vector", "MTE2"), ("vector", "MTE3"),
    }  # fmt: skip
    assert sum(len(x["start"]) for x in data["lanes"]) == len(mixed.timeline.spans)
    for lane in data["lanes"]:
        sizes = {len(lane[k]) for k in ("start", "end", "op", "line", "bytes", "waited", "on")}
        assert len(sizes) == 1 and lane["start"] == sorted(lane["start"])
    assert data["arrows"] and all(a[1] <= a[3] + 0.2 for a in data["arrows"])
    assert [r["space"] for r in data["rooms"]] == ["L1", "L0A", "L0B", "L0C", "UB"]
    assert data["left_out"] == 0 and [x["number"] for x in data["lines"]] == list(range(10, 18))


def test_page_of_a_big_kernel_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars: 1.5 MB, and what is left out is said."""
    program = gemm(m=1280, n=256, k=8192, tiles=(128, 256, 64), step=16, cores=1)
    r = report(simulate(program, CHIP, window=40_000), program, GEMM_LISTING)
    text = html.page(r)
    _, data = parsed(text)
    assert len(r.timeline.spans) > html.SPANS
    assert data["left_out"] == len(r.timeline.spans) - html.SPANS
    assert len(text.encode()) < 1_500_000


def test_page_cannot_be_broken_by_a_source_line(gemm_report: Make) -> None:
    r = gemm_report()
    line = '    x = "</script><script>alert(1)</script><!--"'
    lines = (*r.lines[:-1], type(r.lines[0])(17, line, {}, 0.0, 0.0))
    r = Report(r.timeline, r.program, r.listing, r.figures, r.advice, r.rooms, lines, "own", {})
    page, data = parsed(html.page(r))
    assert len(page.scripts) == 2 and data["lines"][-1]["text"] == line
