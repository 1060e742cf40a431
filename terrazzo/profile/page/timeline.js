// The timeline: a lane for each pipe of each core, arrows for flags, an overview to move in.
function timeline(root) {
  const LANE = 24, GAP = 3, AXIS = 26, HEAD = 24, STRIP = 4;
  const main = make("canvas", { class: "main", tabindex: 0, "aria-label": "Timeline of the pipes" });
  const overview = make("canvas", { class: "overview", "aria-label": "Overview of the timeline" });
  root.append(main, overview);
  const rows = [];
  let height = AXIS, last = "";
  data.lanes.forEach((lane, index) => {
    const core = `${lane.kind} core ${lane.core}`;
    if (core !== last) {
      rows.push({ head: core, y: height });
      height += HEAD;
      last = core;
    }
    rows.push({ lane, index, y: height });
    height += LANE + GAP;
  });
  height += 6;
  const placed = [];
  for (const row of rows) if (row.lane) placed[row.index] = row.y;

  const x = (t, left, width) => left + ((t - view.from) / (view.to - view.from)) * (width - left);

  function firstAfter(list, t) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function draw() {
    const [c, width] = prepared(main, height);
    const left = GUTTER(), ink = style("--ink"), muted = style("--muted"), line = style("--line");
    const [marks, step] = ticks(view.from, view.to, width - left);
    c.font = "11px system-ui, 'Noto Sans', sans-serif";
    c.textBaseline = "middle";
    for (const us of marks) {
      const at = x(us * data.mhz, left, width);
      c.fillStyle = line;
      c.fillRect(at, AXIS - 5, 1, height);
      c.fillStyle = muted;
      c.textAlign = at > width - 44 ? "right" : "left";
      c.fillText(time(us, step), at + (at > width - 44 ? -4 : 4), AXIS / 2);
    }
    c.textAlign = "left";
    for (const row of rows) {
      if (row.head) {
        c.fillStyle = style("--soft");
        c.fillRect(0, row.y, width, HEAD - 4);
        c.fillStyle = ink;
        c.font = "600 12px system-ui, 'Noto Sans', sans-serif";
        c.fillText(row.head, 12, row.y + (HEAD - 4) / 2 + 0.5);
        continue;
      }
      lane(c, row, left, width);
      c.fillStyle = style("--card");
      c.fillRect(0, row.y - GAP + 1, left, LANE + GAP);
      c.fillStyle = ink;
      c.font = "12px system-ui, 'Noto Sans', sans-serif";
      c.fillText(row.lane.label, 12, row.y + LANE / 2);
    }
    if (at("arrows").checked) arrows(c, left, width);
    strip();
  }

  function lane(c, row, left, width) {
    const { start, end, op } = row.lane;
    c.font = "11px system-ui, 'Noto Sans', sans-serif";
    let drawn = -1;
    for (let i = Math.max(0, firstAfter(start, view.from) - 3); i < start.length; i++) {
      if (start[i] > view.to) break;
      // A read frees its pipe before its data has arrived: it is drawn up to the next one.
      const until = i + 1 < start.length ? Math.min(end[i], start[i + 1]) : end[i];
      const a = Math.max(left, x(start[i], left, width)), b = x(until, left, width);
      if (b < left || b < drawn + 0.5) continue;
      const wide = Math.max(b - a - (b - a > 3 ? 1 : 0), 0.6);
      c.fillStyle = row.lane.colour;
      c.fillRect(a, row.y, wide, LANE);
      drawn = a + wide;
      if (wide > 34) {
        c.save();
        c.beginPath();
        c.rect(a, row.y, wide - 3, LANE);
        c.clip();
        c.fillStyle = "#fff";
        c.fillText(data.ops[op[i]], a + 5, row.y + LANE / 2 + 0.5);
        c.restore();
      }
    }
  }

  function arrows(c, left, width) {
    const shown = data.arrows.filter((a) => a[3] >= view.from && a[1] <= view.to);
    if (shown.length > 260) return; // a thicket says nothing
    c.save();
    c.beginPath();
    c.rect(left, AXIS, width - left, height);
    c.clip();
    c.strokeStyle = c.fillStyle = style("--ink");
    c.globalAlpha = shown.length > 90 ? 0.35 : 0.6;
    c.lineWidth = 1;
    for (const [from, raised, to, taken] of shown) {
      const a = x(raised, left, width), b = Math.max(x(taken, left, width), a);
      const down = placed[to] > placed[from];
      const y = placed[from] + (down ? LANE : 0), z = placed[to] + (down ? 0 : LANE);
      const bend = Math.max(6, Math.min(26, (b - a) / 2));
      c.beginPath();
      c.moveTo(a, y);
      c.bezierCurveTo(a + bend, y + (down ? 9 : -9), b - bend, z - (down ? 9 : -9), b, z);
      c.stroke();
      c.beginPath();
      c.arc(b, z, 2, 0, 7);
      c.fill();
    }
    c.restore();
  }

  function strip() {
    const tall = data.lanes.length * STRIP + 14;
    const [c, width] = prepared(overview, tall);
    const left = GUTTER(), room = width - left;
    data.lanes.forEach((lane, i) => {
      c.fillStyle = lane.colour;
      let drawn = -1;
      for (let k = 0; k < lane.start.length; k++) {
        const a = left + (lane.start[k] / data.until) * room;
        const b = left + (lane.end[k] / data.until) * room;
        if (b < drawn + 0.5) continue;
        c.fillRect(a, 7 + i * STRIP, Math.max(b - a, 0.6), STRIP - 1);
        drawn = Math.max(b, a + 0.6);
      }
    });
    const a = left + (view.from / data.until) * room, b = left + (view.to / data.until) * room;
    c.fillStyle = style("--card");
    c.globalAlpha = 0.72;
    c.fillRect(left, 0, a - left, tall);
    c.fillRect(b, 0, width - b, tall);
    c.globalAlpha = 1;
    c.strokeStyle = style("--accent");
    c.lineWidth = 2;
    c.strokeRect(a + 1, 1, Math.max(b - a - 2, 3), tall - 2);
    c.fillStyle = style("--muted");
    c.font = "11px system-ui, 'Noto Sans', sans-serif";
    c.textBaseline = "middle";
    c.fillText("all", 12, tall / 2);
  }

  const timeAt = (event) => {
    const box = main.getBoundingClientRect(), left = GUTTER();
    const share = (event.clientX - box.left - left) / (box.width - left);
    return view.from + share * (view.to - view.from);
  };

  function under(event) {
    const y = event.clientY - main.getBoundingClientRect().top;
    const row = rows.find((r) => r.lane && y >= r.y && y < r.y + LANE);
    if (!row) return null;
    const t = timeAt(event), { start, end } = row.lane;
    const near = (4 * (view.to - view.from)) / main.clientWidth;
    for (let i = firstAfter(start, t + near) - 1; i >= 0 && i > firstAfter(start, t) - 8; i--) {
      if (end[i] >= t - near) return [row.lane, i];
    }
    return null;
  }

  function hover(event) {
    const found = under(event);
    if (!found) return tip.hide();
    const [lane, i] = found;
    const cycles = lane.end[i] - lane.start[i], number = lane.line[i];
    const rows = [make("b", {}, data.ops[lane.op[i]]), ` on ${lane.label}`, make("br"),
      `${grouped(cycles)} cycles, ${time(micros(cycles))} from ${time(micros(lane.start[i]))}`];
    if (lane.bytes[i]) {
      rows.push(make("br"), `${bytes(lane.bytes[i])}, ${digits(lane.bytes[i] / cycles)} B/cycle`);
    }
    if (lane.on[i] >= 0) {
      rows.push(make("br"), `waited ${grouped(lane.waited[i])} cycles for ${data.pipes[lane.on[i]]}`);
    }
    if (number) {
      const text = data.lines[number - data.first].text.trim();
      rows.push(make("br"), make("code", {}, `${number}: ${text}`));
    }
    tip.show(event, ...rows);
  }

  let held = null;
  main.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from: view.from, to: view.to, moved: false };
    main.setPointerCapture(event.pointerId);
    main.classList.add("held");
    tip.hide();
  });
  main.addEventListener("pointermove", (event) => {
    if (!held) return hover(event);
    const per = (held.to - held.from) / (main.clientWidth - GUTTER());
    const by = (held.x - event.clientX) * per;
    held.moved ||= Math.abs(event.clientX - held.x) > 3;
    view.set(held.from + by, held.to + by);
  });
  main.addEventListener("pointerup", (event) => {
    main.classList.remove("held");
    const found = held && !held.moved && under(event);
    if (found) mark(found[0].line[found[1]]);
    held = null;
  });
  main.addEventListener("pointercancel", () => (held = null));
  main.addEventListener("pointerleave", () => tip.hide());
  main.addEventListener("dblclick", (event) => view.zoom(0.4, timeAt(event)));
  main.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(1.0025 ** event.deltaY, timeAt(event));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = ((event.deltaX || event.deltaY) / main.clientWidth) * (view.to - view.from);
      view.set(view.from + by, view.to + by);
    }
  }, { passive: false });
  main.addEventListener("keydown", (event) => {
    const by = 0.2 * (view.to - view.from);
    const act = { "+": () => view.zoom(0.6), "=": () => view.zoom(0.6), "-": () => view.zoom(1.7),
      ArrowLeft: () => view.set(view.from - by, view.to - by),
      ArrowRight: () => view.set(view.from + by, view.to + by), 0: () => view.set(0, data.until) };
    if (act[event.key]) {
      act[event.key]();
      event.preventDefault();
    }
  });
  const jump = (event) => {
    if (!event.buttons) return;
    const left = GUTTER(), box = overview.getBoundingClientRect();
    const t = ((event.clientX - box.left - left) / (box.width - left)) * data.until;
    const half = (view.to - view.from) / 2;
    view.set(t - half, t + half);
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    jump(event);
  });
  overview.addEventListener("pointermove", jump);
  at("arrows").addEventListener("change", () => view.changed());
  at("in").addEventListener("click", () => view.zoom(0.5));
  at("out").addEventListener("click", () => view.zoom(2));
  at("all").addEventListener("click", () => view.set(0, data.until));
  at("first").addEventListener("click", () => view.set(0, data.window));
  view.listeners.push(draw);
}
