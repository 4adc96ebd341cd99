"""Figures with a slider: plain inline SVG and JavaScript that draws it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

from algoformer.experiments.drawing import COLOURS
from algoformer.experiments.experiment import Knob

STYLE = """
.knob label { display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-items: center }
.knob input { flex: 1 1 12rem; accent-color: #0072b2; min-height: 2rem } .knob output { font-weight: 600 }
.knob svg { min-width: 0; font: 12px system-ui, sans-serif; fill: currentColor }
"""

SCRIPT = """
function drawKnob(box) {
  const k = JSON.parse(box.querySelector('script').textContent), svg = box.querySelector('svg');
  const input = box.querySelector('input'), shown = box.querySelector('output');
  const W = 720, H = 330, L = 66, R = 12, T = 8 + 16 * Math.ceil(k.names.length / 3), B = 44;
  const f = v => k.log ? Math.log10(v) : v, fx = v => k.logx ? Math.log10(v) : v;
  const x0 = fx(k.x[0]), x1 = fx(k.x[k.x.length - 1]), y0 = f(k.low), y1 = f(k.high);
  const X = v => L + (fx(v) - x0) / (x1 - x0 || 1) * (W - L - R);
  const Y = v => Math.max(T - 4, Math.min(H - B + 4, H - B - (f(v) - y0) / (y1 - y0 || 1) * (H - B - T)));
  const text = (x, y, s, a) => `<text x="${x}" y="${y}" text-anchor="${a || 'middle'}">${s}</text>`;
  const plain = v => v === 0 || (Math.abs(v) >= 0.01 && Math.abs(v) < 10000);
  const label = v => plain(v) ? +v.toPrecision(3) + '' : v.toExponential(0);
  function ticks(a, b, log) {
    if (log) { const s = Math.max(1, Math.ceil((b - a) / 6)), t = [];
      for (let e = Math.ceil(a); e <= b; e += s) t.push(10 ** e); return t; }
    const raw = (b - a) / 5, p = 10 ** Math.floor(Math.log10(raw)), t = [];
    const s = [1, 2, 5, 10].map(m => m * p).find(v => v >= raw);
    for (let v = Math.ceil(a / s) * s; v <= b + 1e-9; v += s) t.push(Math.abs(v) < s / 1e6 ? 0 : v);
    return t;
  }
  let frame = '';
  for (const v of ticks(y0, y1, k.log)) frame += `<line x1="${L}" x2="${W - R}" y1="${Y(v)}" y2="${Y(v)}" stroke="#888"
    stroke-opacity=".25"/>` + text(L - 8, Y(v) + 4, label(v), 'end');
  for (const v of ticks(x0, x1, k.logx)) frame += text(X(v), H - B + 18, label(v));
  frame += `<line x1="${L}" x2="${W - R}" y1="${H - B}" y2="${H - B}" stroke="currentColor"/>` +
    text((L + W) / 2, H - 6, k.xlabel) +
    `<text transform="translate(14 ${(T + H - B) / 2}) rotate(-90)" text-anchor="middle">${k.ylabel}</text>`;
  k.names.forEach((n, i) => { const x = L + (i % 3) * 215, y = 14 + 16 * Math.floor(i / 3);
    frame += `<line x1="${x}" x2="${x + 18}" y1="${y - 4}" y2="${y - 4}" stroke="${k.colours[i]}" stroke-width="3"/>` +
      text(x + 24, y, n, 'start'); });
  function draw() {
    const i = +input.value; shown.textContent = k.values[i];
    svg.innerHTML = frame + k.lines.map((rows, j) => { let d = '', pen = 'M';
      rows[i].forEach((v, p) => { if (v === null || (k.log && v <= 0)) { pen = 'M'; return; }
        d += `${pen}${X(k.x[p]).toFixed(1)} ${Y(v).toFixed(1)}`; pen = 'L'; });
      return `<path d="${d}" fill="none" stroke="${k.colours[j]}" stroke-width="2.2"/>`; }).join('');
  }
  input.addEventListener('input', draw); draw();
}
addEventListener('DOMContentLoaded', () => document.querySelectorAll('.knob').forEach(drawKnob));
"""

HEAD = f"<style>{STYLE}</style><script>{SCRIPT}</script>"


def slider(knob: Knob) -> str:
    """The figure of a knob; the page needs `HEAD`."""
    low, high = _limits([v for rows in knob.lines.values() for row in rows for v in row], knob.log)
    data = {
        "values": list(knob.values),
        "x": list(knob.x),
        "names": [escape(name) for name in knob.lines],
        "lines": [[[_plain(v) for v in row] for row in rows] for rows in knob.lines.values()],
        "colours": [COLOURS[i % len(COLOURS)] for i in range(len(knob.lines))],
        "xlabel": escape(knob.xlabel),
        "ylabel": escape(knob.ylabel),
        "log": knob.log,
        "logx": knob.logx,
        "low": low,
        "high": high,
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<figure class="knob"><label>{escape(knob.label)} <output></output>'
        f'<input type="range" min="0" max="{len(knob.values) - 1}" value="0" aria-label="{escape(knob.label)}"></label>'
        f'<svg viewBox="0 0 720 330" role="img" aria-label="{escape(knob.caption)}"></svg>'
        f'<script type="application/json">{text}</script><figcaption>{escape(knob.caption)}</figcaption></figure>'
    )


def _limits(values: Sequence[float], log: bool) -> tuple[float, float]:
    """What the axis shows: nearly all of the values, at most nine decades of them."""
    known = sorted(v for v in values if math.isfinite(v) and (v > 0 or not log))
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    if not log:
        low, high = known[0], known[-1]
        room = 0.04 * (high - low) or 1.0
        return low - room, high + room
    high = min(known[int(0.98 * (len(known) - 1))] * 1.5, 1e4)
    return max(known[0] / 1.5, high * 1e-9), high


def _plain(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
