// The roofline: what each roof allows at an intensity, and where this launch is.
function roofline(root) {
  const W = Math.max(290, Math.min(600, root.clientWidth - 36)), H = Math.max(300, 0.78 * W), L = 62, R = 18, T = 18, B = 46;
  const compute = data.roofs.filter((r) => r.unit !== "TB/s");
  const flows = data.roofs.filter((r) => r.unit === "TB/s");
  if (!compute.length || !data.intensity) {
    root.append(make("p", { class: "muted" }, "This kernel only moves bytes: it has no roofline."));
    return;
  }
  const peak = Math.max(...compute.map((r) => r.peak));
  const ridge = peak / Math.min(...flows.map((r) => r.peak));
  const decade = (x) => Math.floor(Math.log10(x));
  const x0 = decade(Math.min(data.intensity, data.l2_intensity || Infinity, ridge) / 3);
  const x1 = decade(Math.max(data.intensity, ridge) * 3) + 1;
  const y1 = decade(peak * 1.5) + 1;
  const y0 = Math.min(decade(data.tflops / 3), decade(Math.min(...compute.map((r) => r.peak)) / 10), y1 - 2);
  const x = (v) => L + ((Math.log10(v) - x0) / (x1 - x0)) * (W - L - R);
  const y = (v) => H - B - ((Math.log10(v) - y0) / (y1 - y0)) * (H - T - B);
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img",
    "aria-label": "Roofline plot: TFLOP/s over operations a byte" });
  const text = (a, b, said, more = {}) => svg.append(make("text", { x: a, y: b, ...more }, said));
  for (let n = x0; n <= x1; n++) {
    svg.append(make("line", { x1: x(10 ** n), x2: x(10 ** n), y1: T, y2: H - B, stroke: "var(--line)" }));
    text(x(10 ** n), H - B + 18, digits(10 ** n), { class: "muted", "text-anchor": "middle" });
  }
  for (let n = y0; n <= y1; n++) {
    svg.append(make("line", { x1: L, x2: W - R, y1: y(10 ** n), y2: y(10 ** n), stroke: "var(--line)" }));
    text(L - 8, y(10 ** n) + 4, digits(10 ** n), { class: "muted", "text-anchor": "end" });
  }
  text((L + W - R) / 2, H - 8, "operations a byte", { class: "muted", "text-anchor": "middle" });
  text(14, (T + H - B) / 2, "TFLOP/s", { class: "muted", "text-anchor": "middle",
    transform: `rotate(-90 14 ${(T + H - B) / 2})` });
  const points = [["memory", data.intensity], ["l2", data.l2_intensity]];
  const colours = { memory: "#3d8fd1", l2: "#2fa58b", cube: "#e0565b", vector: "#9a6ad6" };
  const named = { memory: "HBM", l2: "L2", cube: "Cube", vector: "Vector" };
  for (const roof of flows) {
    const low = Math.max(10 ** x0, 10 ** y0 / roof.peak), high = Math.min(10 ** x1, peak / roof.peak);
    svg.append(make("line", { x1: x(low), y1: y(low * roof.peak), x2: x(high), y2: y(high * roof.peak),
      stroke: colours[roof.name], "stroke-width": 2.5, "stroke-linecap": "round" }));
    const clear = (share) => Math.min(...points.map(([, intensity]) =>
      Math.abs(Math.log(low * (high / low) ** share) - Math.log(intensity || 1e-9))));
    const share = [0.42, 0.72, 0.18].reduce((a, b) => (clear(b) > 1.5 * clear(a) ? b : a));
    const where = low * (high / low) ** share;
    const turn = (Math.atan2(y(where * 2 * roof.peak) - y(where * roof.peak), x(where * 2) - x(where)) * 180) / Math.PI;
    const [px, py] = [x(where), y(where * roof.peak)];
    const dy = roof.name === "l2" ? -8 : 17;
    text(px, py + dy, `${named[roof.name]} ${digits(roof.peak)} TB/s`, { "text-anchor": "middle",
      transform: `rotate(${turn} ${px} ${py})`, style: `fill:${colours[roof.name]}` });
  }
  for (const roof of compute) {
    const from = roof.peak / Math.max(...flows.map((r) => r.peak));
    svg.append(make("line", { x1: x(Math.max(from, 10 ** x0)), x2: W - R, y1: y(roof.peak), y2: y(roof.peak),
      stroke: colours[roof.name], "stroke-width": 2.5, "stroke-linecap": "round" }));
    text(W - R - 4, y(roof.peak) - 7, `${named[roof.name]} ${digits(roof.peak)} TFLOP/s`,
      { "text-anchor": "end", style: `fill:${colours[roof.name]}` });
  }
  for (const [name, intensity] of points) {
    if (!intensity) continue;
    const dot = make("circle", { cx: x(intensity), cy: y(data.tflops), r: 6.5, fill: colours[name],
      stroke: "var(--card)", "stroke-width": 2 });
    dot.addEventListener("pointermove", (event) => tip.show(event, make("b", {}, named[name]), make("br"),
      `${digits(data.tflops)} TFLOP/s at ${digits(intensity)} operations a byte of ${named[name]}`));
    dot.addEventListener("pointerleave", () => tip.hide());
    svg.append(dot);
  }
  root.append(svg, make("p", { class: "note" },
    `This launch: ${digits(data.tflops)} TFLOP/s at ${digits(data.intensity)} operations a byte of HBM`
    + (data.l2_intensity ? `, ${digits(data.l2_intensity)} a byte of L2.` : ".")));
}
