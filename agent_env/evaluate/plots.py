"""The report's plots as inline SVG: no library, no script, readable in light and dark (colours are CSS variables)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from agent_env.evaluate.stats import Estimate

__all__ = ["histogram", "intervals", "stacked_bar"]

_WIDTH, _LEFT, _RIGHT = 640, 130, 20


def histogram(values: Sequence[float], bins: int = 20) -> str:
    """Counts of values over equal bins from the least to the greatest value (0 to 1 if all lie there)."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low == high:
        low, high = low - 0.5, high + 0.5
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    height, base = 180, 150
    step = (_WIDTH - 2 * _RIGHT) / bins
    bars = []
    for place, count in enumerate(counts):
        tall = count / max(counts) * (base - 20)
        x = _RIGHT + place * step
        edges = f"{low + place * (high - low) / bins:.2f} to {low + (place + 1) * (high - low) / bins:.2f}"
        bars.append(
            f'<rect class="bar" x="{x:.1f}" y="{base - tall:.1f}" width="{step - 2:.1f}" height="{tall:.1f}">'
            f"<title>{edges}: {count}</title></rect>"
        )
        if count:
            bars.append(_text(x + step / 2 - 1, base - tall - 4, str(count), "middle", "small"))
    axis = [
        _text(_RIGHT + part * (_WIDTH - 2 * _RIGHT), base + 18, f"{low + part * (high - low):.2f}", anchor)
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    ]
    return _svg(height, [*bars, _line(_RIGHT, base, _WIDTH - _RIGHT, base), *axis])


def intervals(rows: Mapping[str, Estimate]) -> str:
    """Means as dots with their 95 % intervals, one line a row, on one axis."""
    known = {name: row for name, row in rows.items() if row.mean == row.mean}
    if not known:
        return ""
    low = min(0.0, *(row.low for row in known.values()))
    high = max(1.0, *(row.high for row in known.values()))
    height = 30 * len(known) + 40

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - 110)

    parts = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = low + part * (high - low)
        parts += [
            _line(x(at), 10, x(at), height - 28, "grid"),
            _text(x(at), height - 12, f"{at:.2f}", "middle", "small"),
        ]
    for place, (name, row) in enumerate(known.items()):
        y = 25 + 30 * place
        parts += [
            _text(_LEFT - 12, y + 4, name, "end"),
            _line(x(row.low), y, x(row.high), y, "range"),
            f'<circle class="dot" cx="{x(row.mean):.1f}" cy="{y}" r="5">'
            f"<title>{escape(f'{name}: {row}')}</title></circle>",
            _text(_WIDTH - 100, y + 4, f"{row.mean:.3f}  n={row.episodes}"),
        ]
    return _svg(height, parts)


def stacked_bar(parts: Mapping[str, float]) -> str:
    """Seconds by phase as one bar, with a legend."""
    total = sum(parts.values())
    if total <= 0:
        return ""
    shapes, at = [], float(_RIGHT)
    for place, (name, seconds) in enumerate(parts.items()):
        wide = seconds / total * (_WIDTH - 2 * _RIGHT)
        shapes.append(
            f'<rect class="phase{place}" x="{at:.1f}" y="10" width="{wide:.1f}" height="32">'
            f"<title>{escape(name)}: {seconds:.3f} s</title></rect>"
        )
        column = _RIGHT + place * 122
        shapes.append(f'<rect class="phase{place}" x="{column}" y="58" width="12" height="12"/>')
        shapes.append(_text(column + 18, 69, f"{name} {seconds:.3f} s"))
        at += wide
    return _svg(84, shapes)


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
