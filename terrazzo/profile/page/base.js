// What all parts of the page share: the data, elements, numbers as people read them, the tip.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "circle", "text", "g"].includes(tag);
  const out = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) out.setAttribute(name, value);
  out.append(...children);
  return out;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const grouped = (x) => Math.round(x).toLocaleString("en");
const digits = (x, n = 3) => (x >= 10 ** n ? grouped(x) : String(Number(x.toPrecision(n))));
const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;
const micros = (cycles) => cycles / data.mhz;

function bytes(x) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (x < 1024 || unit === "GiB") return `${digits(x)} ${unit}`;
    x /= 1024;
  }
}

function time(us, step = us) {
  return step < 0.5 ? `${Math.round(us * 1000).toLocaleString("en")} ns` : `${digits(us, 4)} µs`;
}

const rate = (gb) => (gb >= 1000 ? `${digits(gb / 1000)} TB/s` : `${digits(gb)} GB/s`);

const tip = {
  show(event, ...content) {
    const box = at("tip");
    box.replaceChildren(...content);
    box.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 18;
    const y = below + box.offsetHeight < innerHeight ? below : event.clientY - box.offsetHeight - 12;
    box.style.left = `${Math.max(8, x)}px`;
    box.style.top = `${y}px`;
  },
  hide() {
    at("tip").hidden = true;
  },
};

// A canvas that is sharp on any screen; returns its context and its size in CSS pixels.
function prepared(canvas, height) {
  const width = canvas.clientWidth;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width];
}

// The part of the time that timeline and memories show, in cycles; whoever draws it listens.
const view = {
  from: 0,
  to: data.window || data.until || 1,
  listeners: [],
  set(from, to) {
    const least = Math.min(40, data.until);
    const span = Math.min(Math.max(to - from, least), data.until);
    const start = Math.min(Math.max(0, from), data.until - span);
    this.from = start;
    this.to = start + span;
    this.changed();
  },
  zoom(factor, centre = (this.from + this.to) / 2) {
    const to = centre + (this.to - centre) * factor;
    this.set(centre - (centre - this.from) * factor, to);
  },
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const draw of this.listeners) draw();
    });
  },
};

const GUTTER = () => (innerWidth < 600 ? 58 : 84); // room for labels left of a time axis

function ticks(from, to, width) {
  const least = (micros(to - from) / Math.max(width, 1)) * 90; // µs that 90 pixels stand for
  const unit = 10 ** Math.floor(Math.log10(least || 1));
  const step = unit * ([1, 2, 5, 10].find((f) => f * unit >= least) || 10);
  const out = [];
  for (let n = Math.ceil(micros(from) / step); n * step <= micros(to); n++) out.push(n * step);
  return [out, step];
}
