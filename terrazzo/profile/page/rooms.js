// What UB, L1 and L0 hold: addresses upwards, the timeline's part of the time to the right.
function rooms(root) {
  for (const room of data.rooms) {
    const legend = make("div", { class: "legend" });
    for (const b of room.buffers) {
      const slots = b.slots > 1 ? `${b.slots} × ` : "";
      legend.append(make("span", {}, make("i", { style: `background:${b.colour}` }), b.tile, " ",
        make("span", { class: "muted" }, `${slots}${bytes(b.bytes)}`)));
    }
    const canvas = make("canvas", { "aria-label": `${room.space} over time` });
    root.append(make("div", { class: "card flush room" },
      make("div", { class: "head" }, make("b", {}, room.space),
        make("span", { class: "muted" }, room.summary), legend), canvas));
    const tall = { L1: 170, UB: 190 }[room.space] || 84;
    const draw = () => paint(canvas, room, tall);
    view.listeners.push(draw);
    canvas.addEventListener("pointermove", (event) => {
      const found = covering(canvas, room, tall, event);
      if (!found) return tip.hide();
      const b = room.buffers[found[0]];
      const slot = b.slots > 1 ? `, slot ${found[1] + 1} of ${b.slots}` : "";
      tip.show(event, make("b", {}, b.tile), slot, make("br"),
        `0x${found[2].toString(16)} to 0x${(found[2] + b.bytes).toString(16)} (${bytes(b.bytes)})`,
        make("br"), `held for ${time(micros(found[4] - found[3]))} from ${time(micros(found[3]))}`);
    });
    canvas.addEventListener("pointerleave", () => tip.hide());
  }
}

const PAD = 8;

function covering(canvas, room, tall, event) {
  const box = canvas.getBoundingClientRect(), left = GUTTER();
  const share = (event.clientX - box.left - left) / (box.width - left);
  const t = view.from + share * (view.to - view.from);
  const address = ((tall - PAD - (event.clientY - box.top)) / (tall - 2 * PAD)) * room.top;
  return room.held.find(([buffer, , from, start, end]) => t >= start && t < end
    && address >= from && address < from + room.buffers[buffer].bytes);
}

function paint(canvas, room, tall) {
  const [c, width] = prepared(canvas, tall);
  const left = GUTTER(), size = tall - 2 * PAD;
  const y = (address) => tall - PAD - (address / room.top) * size;
  c.font = "11px system-ui, 'Noto Sans', sans-serif";
  c.textBaseline = "middle";
  const steps = tall > 120 ? 4 : 2;
  for (let n = 0; n <= steps; n++) {
    c.fillStyle = style("--line");
    c.fillRect(left, Math.round(y((room.top * n) / steps)), width - left, 1);
    c.fillStyle = style("--muted");
    c.textBaseline = n === 0 ? "bottom" : n === steps ? "top" : "middle";
    c.fillText(bytes((room.top * n) / steps), 12, y((room.top * n) / steps) + (n === 0 ? 4 : n === steps ? -4 : 0));
  }
  c.save();
  c.beginPath();
  c.rect(left, 0, width - left, tall);
  c.clip();
  const per = (width - left) / (view.to - view.from);
  for (const [buffer, slot, address, start, end] of room.held) {
    if (end < view.from || start > view.to) continue;
    const b = room.buffers[buffer];
    const a = left + (start - view.from) * per, wide = Math.max((end - start) * per - 1, 0.6);
    const top = y(address + b.bytes), high = Math.max(y(address) - top - 1, 1);
    c.globalAlpha = slot % 2 ? 0.62 : 0.92;
    c.fillStyle = b.colour;
    c.fillRect(a, top, wide, high);
    if (wide > 60 && high > 14) {
      c.globalAlpha = 1;
      c.fillStyle = "#10131a";
      c.textBaseline = "middle";
      const from = Math.max(a, left) + 6;
      c.save();
      c.beginPath();
      c.rect(a, top, wide - 4, high);
      c.clip();
      c.fillText(b.tile, from, top + high / 2);
      c.restore();
    }
  }
  c.restore();
}
