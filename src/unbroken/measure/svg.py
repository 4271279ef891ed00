"""Lines, marks and words of a figure, as SVG: a dozen of them need no library."""

from __future__ import annotations

from xml.sax.saxutils import escape


def opening(width: int, height: int) -> list[str]:
    """The beginning of a figure; `</svg>` ends it.

    >>> opening(10, 20)[1]
    '<rect width="10" height="20" fill="white"/>'
    """
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]


def rule(
    x1: float, y1: float, x2: float, y2: float, colour: str = "#dddddd", width: int = 1
) -> str:
    """A straight line.

    >>> rule(0, 0, 1, 1).startswith('<line x1="0.0"')
    True
    """
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def mark(x: float, y: float, colour: str, radius: int = 6) -> str:
    """A round mark.

    >>> mark(1, 2, "red")
    '<circle cx="1.0" cy="2.0" r="6" fill="red"/>'
    """
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def words(
    x: float, y: float, text: str, size: int = 12, *, anchor: str = "start", colour: str = "black"
) -> str:
    """Text at a place.

    >>> "a &lt; b" in words(0, 0, "a < b")
    True
    """
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def upright(x: float, y: float, text: str) -> str:
    """Text beside a vertical axis.

    >>> "rotate(-90)" in upright(0, 0, "seconds")
    True
    """
    return (
        f'<text transform="translate({x:g} {y:g}) rotate(-90)" text-anchor="middle">'
        f"{escape(text)}</text>"
    )
