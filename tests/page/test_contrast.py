"""Contrasts of the page's colours, as WCAG 2.2 AA asks: axe looks at text, and not at what is drawn on a canvas."""

import colorsys
import re
from pathlib import Path

import pytest

ASSETS = Path(__file__).resolve().parent.parent.parent / "page" / "assets"
CSS = (ASSETS / "page.css").read_text()
LANES = (ASSETS / "lanes.js").read_text()
SCHEMES = [
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
]
TEXTS = ("text", "faint", "accent", "good", "bad")
DRAWN = (
    "fill",
    "fill-full",
    "active",
    "backoff",
    "unschedulable",
    "gated",
    "flight",
    "permit",
    "focus",
    "bad",
    "text",
)


def luminance(rgb: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def rgb(text: str) -> tuple[float, float, float]:
    return int(text[1:3], 16) / 255, int(text[3:5], 16) / 255, int(text[5:7], 16) / 255


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", SCHEMES, ids=["light", "dark"])
def test_contrast_is_what_wcag_asks(colours: dict[str, str]) -> None:
    behind = [rgb(colours[name]) for name in ("back", "panel")]

    assert min(contrast(rgb(colours[name]), back) for name in TEXTS for back in behind) >= 4.5
    assert min(contrast(rgb(colours[name]), behind[0]) for name in DRAWN) >= 3
    assert contrast(rgb(colours["select"]), rgb("#16181d")) >= 4.5


def test_names_on_bars_can_be_read_on_every_tint() -> None:
    ink = re.search(r'fillStyle = "(#[0-9a-f]{6})"', LANES)
    tint = re.search(r"hsl\(\$\{hash % 360\} (\d+)% (\d+)%\)", LANES)
    assert ink is not None
    assert tint is not None
    saturation, lightness = int(tint[1]) / 100, int(tint[2]) / 100

    tints = [colorsys.hls_to_rgb(hue / 360, lightness, saturation) for hue in range(360)]

    assert min(contrast(rgb(ink[1]), one) for one in tints) >= 4.5
