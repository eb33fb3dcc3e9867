"""Numbers formatted for people."""

from __future__ import annotations

import math


def in_bytes(value: float) -> str:
    """Decimal units, three digits.

    >>> in_bytes(226_573_200)
    '227 MB'
    >>> in_bytes(755.0)
    '755 B'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB" if abs(value) < 999.5 else f"{value:,.0f} TB"


def in_seconds(value: float) -> str:
    """Milliseconds to hours.

    >>> in_seconds(0.0523), in_seconds(12.34), in_seconds(200), in_seconds(7500)
    ('52 ms', '12.3 s', '3 min 20 s', '2 h 5 min')
    """
    if value < 0.9995:
        return f"{1000 * value:.0f} ms" if value else "0"
    if value < 59.95:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min {seconds} s"


def points(value: float) -> str:
    """A difference of accuracies, with its sign.

    >>> points(-1.25), points(0.5)
    ('−1.2', '+0.5')
    """
    return f"{value:+.1f}".replace("-", "−")


def spread(mean: float, std: float, digits: int = 1) -> str:
    """Mean ± standard deviation, which is omitted if nan.

    >>> spread(61.54, 1.26), spread(61.54, math.nan)
    ('61.5 ± 1.3', '61.5')
    """
    if math.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
