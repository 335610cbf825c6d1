"""A small print shop: flat colour, type, bar codes, small print and paper grain on an image."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = str | tuple[int, int, int]

_FINE = 2  # drawn at twice the size and reduced, so that edges are smooth


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType: install the wheel from PyPI")
    return font


class Print:
    """A sheet to draw on, in pixels of the finished print; (0, 0) is the upper left corner."""

    def __init__(self, width: int, height: int, background: Colour):
        self.width, self.height = width, height
        self._image = Image.new("RGB", (width * _FINE, height * _FINE), background)
        self._draw = ImageDraw.Draw(self._image)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: Colour | None,
        *,
        round: float = 0,
        line: Colour | None = None,
        width: float = 1,
    ) -> None:
        """A rectangle with its upper left corner at (x, y)."""
        xy = [x * _FINE, y * _FINE, (x + w) * _FINE - 1, (y + h) * _FINE - 1]
        self._draw.rounded_rectangle(xy, round * _FINE, fill, line, int(width * _FINE))

    def oval(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        fill: Colour | None,
        *,
        line: Colour | None = None,
        width: float = 1,
    ) -> None:
        """An ellipse about (x, y)."""
        xy = [(x - rx) * _FINE, (y - ry) * _FINE, (x + rx) * _FINE, (y + ry) * _FINE]
        self._draw.ellipse(xy, fill, line, int(width * _FINE))

    def polygon(self, points: Sequence[tuple[float, float]], fill: Colour) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * _FINE, y * _FINE) for x, y in points], fill)

    def line(self, points: Sequence[tuple[float, float]], fill: Colour, width: float) -> None:
        """A bent line."""
        self._draw.line([(x * _FINE, y * _FINE) for x, y in points], fill, int(width * _FINE), joint="curve")

    def star(self, x: float, y: float, outer: float, inner: float, points: int, fill: Colour) -> None:
        """A star, or a price burst."""
        k = np.arange(2 * points)
        r = np.where(k % 2 == 0, outer, inner)
        angle = np.pi * k / points - np.pi / 2
        self.polygon(list(zip(x + r * np.cos(angle), y + r * np.sin(angle), strict=True)), fill)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float,
        fill: Colour,
        *,
        bold: float = 0,
        anchor: str = "mm",
        outline: Colour | None = None,
        fit: float | None = None,
    ) -> None:
        """Type.

        Args:
            x: Of the anchor.
            y: Of the anchor.
            words: The text.
            size: Of the type.
            fill: Its colour.
            bold: Extra stroke as a share of the size.
            anchor: As in Pillow: "mm" is the middle, "lm" left, "la" upper left.
            outline: Colour of the stroke; the fill's if None.
            fit: Shrinks the type until the words are at most this wide.
        """
        stroke = round(bold * size * _FINE)
        font = _font(int(size * _FINE))
        if fit is not None:
            while font.getlength(words) + 2 * stroke > fit * _FINE and font.size > 8:
                font = _font(int(font.size) - 1)
        self._draw.text(
            (x * _FINE, y * _FINE), words, fill, font, anchor, stroke_width=stroke, stroke_fill=outline or fill
        )

    def small_print(self, x: float, y: float, w: float, words: str, size: float, fill: Colour) -> float:
        """Wrapped small type from the upper left corner; returns the height it took."""
        font = _font(int(size * _FINE))
        columns = max(4, int(w * _FINE / (font.getlength("abcdefghij mnoprstu") / 19)))
        lines = textwrap.wrap(words, columns)
        for i, line in enumerate(lines):
            self._draw.text((x * _FINE, (y + i * size * 1.25) * _FINE), line, fill, font)
        return len(lines) * size * 1.25

    def table(self, x: float, y: float, w: float, rows: Sequence[tuple[str, str]], size: float, fill: Colour) -> None:
        """A two-column table with rules, as for nutrition facts."""
        for i, (name, value) in enumerate(rows):
            base = y + i * size * 1.4
            self.text(x + 2, base + 0.7 * size, name, size, fill, anchor="lm")
            self.text(x + w - 2, base + 0.7 * size, value, size, fill, anchor="rm")
            self.line([(x, base + 1.4 * size), (x + w, base + 1.4 * size)], fill, 0.5)
        self.box(x - 1, y - 1, w + 2, len(rows) * size * 1.4 + 2, None, line=fill, width=1)

    def bar_code(self, x: float, y: float, w: float, h: float, number: str) -> None:
        """An EAN-13 bar code of 12 digits; the check digit is added."""
        modules, digits = ean13(number)
        self.box(x, y, w, h, "white")
        step = w / (len(modules) + 14)
        for i, on in enumerate(modules):
            if on == "1":
                guard = i < 3 or i >= 92 or 45 <= i < 50
                self.box(x + (7 + i) * step, y + 0.06 * h, step, h * (0.85 if guard else 0.74), "black")
        self.text(x + w / 2, y + 0.9 * h, digits, 0.16 * h, "black", fit=0.9 * w)

    def finish(self, *, grain: float = 3.0, seed: int = 0) -> Image.Image:
        """Reduces the sheet to its size and adds the grain of print on paper or plastic.

        Args:
            grain: Standard deviation of brightness, out of 255.
            seed: Of the grain.
        """
        small = self._image.resize((self.width, self.height), Image.Resampling.BOX)
        if grain <= 0:
            return small
        rng = np.random.default_rng(seed)
        # Fine grain and broad stains, as ink never lies quite even.
        fine = rng.normal(0.0, grain, (self.height, self.width))
        coarse = rng.normal(0.0, 2.0 * grain, (self.height // 16 + 2, self.width // 16 + 2)).astype(np.float32)
        broad = np.asarray(Image.fromarray(coarse).resize((self.width, self.height), Image.Resampling.BICUBIC))
        noisy = np.asarray(small, dtype=np.float32) + (fine + broad)[..., None]
        return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


_LEFT = ["0001101", "0011001", "0010011", "0111101", "0100011", "0110001", "0101111", "0111011", "0110111", "0001011"]
_PARITY = ["LLLLLL", "LLGLGG", "LLGGLG", "LLGGGL", "LGLLGG", "LGGLLG", "LGGGLL", "LGLGLG", "LGLGGL", "LGGLGL"]


def ean13(number: str) -> tuple[str, str]:
    """Returns the 95 modules ("1" is black) and the 13 digits of an EAN-13 bar code.

    Args:
        number: The first 12 digits.
    """
    check = -sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(number)) % 10
    digits = f"{number}{check}"
    right = [code.translate(str.maketrans("01", "10")) for code in _LEFT]
    even = [code[::-1] for code in right]
    left = [(_LEFT if p == "L" else even)[int(d)] for d, p in zip(digits[1:7], _PARITY[int(digits[0])], strict=True)]
    return f"101{''.join(left)}01010{''.join(right[int(d)] for d in digits[7:])}101", digits
