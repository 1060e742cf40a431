// Puts the page together: numbers, advice, bars, source, and light or dark.
function numbers() {
  document.title = `${data.kernel} on ${data.chip}`;
  at("name").append(data.kernel, make("span", {}, ` on ${data.chip}`));
  at("arguments").textContent = Object.entries(data.arguments).map(([n, v]) => `${n} ${v}`).join("  ");
  const cells = [
    ["predicted time", digits(data.us, 4), "µs"],
    ["rate", data.tflops ? digits(data.tflops) : "–", "TFLOP/s"],
    ["of the roof", Math.round(data.roof_percent), `% ${data.roof}`],
    ["bound", data.bound, ""],
  ];
  for (const [name, value, unit] of cells) {
    at("numbers").append(make("div", {}, make("dt", {}, name),
      make("dd", {}, String(value), " ", make("small", {}, unit))));
  }
  const why = data.why[0].toUpperCase() + data.why.slice(1);
  at("why").append(`${why}. `, make("span", { class: "muted" },
    `${grouped(data.cycles)} cycles at ${grouped(data.mhz)} MHz and ${digits(data.launch_us)} µs of launch; `
    + `${data.plan} plan.`));
  const all = micros(data.until) < 0.99 * micros(data.cycles)
    ? `One core of those with the same work, its first ${time(micros(data.until))} of ${time(micros(data.cycles))}. `
    : "One core of those with the same work. ";
  const cut = data.left_out ? `${grouped(data.left_out)} later instructions are left out of this page. ` : "";
  at("shown").textContent = `${all}${cut}Drag to move, Ctrl and wheel or + and − to zoom; point at an `
    + "instruction for its figures, click to find its line.";
}

function advice() {
  if (!data.advice.length) at("advice-section").hidden = true;
  for (const a of data.advice) {
    const text = make("span");
    for (const [n, part] of a.text.split("`").entries()) text.append(n % 2 ? make("code", {}, part) : part);
    const item = make("li", { class: a.rule === "near_the_roof" ? "calm" : "" }, text);
    const side = make("span", { class: "share" });
    if (a.line) {
      const link = make("a", { href: `#line-${a.line}` }, `line ${a.line}`);
      link.addEventListener("click", () => mark(a.line));
      side.append(link);
    }
    item.append(side);
    at("advice").append(item);
  }
}

function pipes() {
  const root = at("pipes");
  root.classList.add("bars");
  let kind = "";
  for (const p of data.bars) {
    if (p.kind !== kind) {
      kind = p.kind;
      root.append(make("h4", {}, `${kind} cores: ${p.cores} of ${p.there}`));
    }
    const track = make("div", { class: "track" });
    const add = (share, colour, wait, said) => {
      const piece = make("i", { class: wait ? "wait" : "", style: `width:${100 * share}%;background:${colour}` });
      piece.addEventListener("pointermove", (event) => tip.show(event, said));
      piece.addEventListener("pointerleave", () => tip.hide());
      track.append(piece);
    };
    add(p.ratio, p.colour, false, `${p.label} is busy ${percent(p.ratio)} of the time`);
    for (const w of p.waits) add(w.drawn, w.colour, true, `${p.label} waits ${percent(w.share)} of the time for ${w.label}`);
    root.append(make("div", { class: "row" }, make("span", { class: "mono" }, `${p.name}_ratio`), track,
      make("span", { class: "value" }, percent(p.ratio), " ", make("span", { class: "muted" }, `${digits(p.us)} µs`))));
  }
  if (data.conflict_ratio > 0.0005) {
    root.append(make("p", { class: "note" },
      `Bank conflicts cost the vector cores ${percent(data.conflict_ratio)} of the time.`));
  }
  root.append(make("p", { class: "note" }, "Solid: busy, from issue to completion. Striped: idle, waiting for the pipe of that colour."));
}

function traffic() {
  for (const x of data.traffic) {
    const track = make("div", { class: "track" },
      make("i", { style: `width:${Math.min(100, 100 * x.share)}%;background:#3d8fd1` }));
    at("traffic").append(make("div", { class: "row" },
      make("span", { class: "mono" }, x.path.replace("->", " → ")), track,
      make("span", { class: "value bytes muted" }, bytes(x.bytes)),
      make("span", { class: "value" }, rate(x.gb_s)),
      make("span", { class: "value muted" }, x.share ? percent(x.share) : "")));
  }
  at("traffic").append(make("p", { class: "note" },
    "Over all cores, while they run; the bar is the share of what the path can move."));
}

const WORDS = /("""[^]*?"""|"[^"]*"|'[^']*')|(#.*$)|\b(def|for|in|if|else|elif|return|and|or|not|None|True|False|lambda|import|from)\b/g;

function coloured(text) {
  const out = [];
  let from = 0;
  for (const found of text.matchAll(WORDS)) {
    out.push(text.slice(from, found.index));
    const kind = found[1] ? "string" : found[2] ? "quiet" : "word";
    out.push(make("span", { class: kind }, found[0]));
    from = found.index + found[0].length;
  }
  return [...out, text.slice(from)];
}

function source() {
  for (const x of data.lines) {
    const hot = x.share >= 0.001;
    const track = make("div", { class: "track" });
    if (hot) {
      track.append(make("i", { style: `width:${Math.min(100, 100 * x.share)}%;background:${x.colour};border-radius:3px` }));
      const said = Object.entries(x.pipes).map(([n, c]) => `${n} ${grouped(c)} cycles, ${percent(c / data.cycles)}`);
      track.addEventListener("pointermove", (event) => tip.show(event, ...said.flatMap((s) => [s, make("br")])));
      track.addEventListener("pointerleave", () => tip.hide());
    }
    at("source").append(make("tr", { id: `line-${x.number}`, class: x.share > 0.1 ? "hot" : "" },
      make("td", { class: "n" }, String(x.number)),
      make("td", { class: "s" }, hot ? percent(x.share) : ""),
      make("td", { class: "c" }, hot ? grouped(x.cycles) : ""),
      make("td", { class: "b" }, track),
      make("td", {}, ...coloured(x.text))));
  }
}

function mark(line) {
  for (const row of document.querySelectorAll("tr.marked")) row.classList.remove("marked");
  const row = at(`line-${line}`);
  if (!row) return;
  row.classList.add("marked");
  row.scrollIntoView({ block: "center" });
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const apply = (name) => {
    root.dataset.theme = name;
    view.changed();
  };
  apply(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => apply(dark.matches ? "dark" : "light"));
  at("theme").addEventListener("click", () => apply(root.dataset.theme === "dark" ? "light" : "dark"));
}

numbers();
advice();
timeline(at("timeline"));
rooms(at("rooms"));
roofline(at("roofline"));
pipes();
traffic();
source();
at("foot").textContent = "A prediction of Terrazzo's simulator, not a measurement; one core stands for all with the same work.";
theme();
addEventListener("resize", () => view.changed());
view.changed();
