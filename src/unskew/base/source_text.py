"""The source code of a class or function, for a hash that changes when the code does."""

from __future__ import annotations

import inspect
import re
from typing import Any

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the repr of a function, another one in every process


def source_text(definition: Any) -> str:
    """The text of a function, or of a class's own functions and its other attributes.

    A class defined in a notebook has no file from which `inspect` could cut it, but its functions have. The code of
    what a function calls is not included.
    """
    if not isinstance(definition, type):
        return _function(definition)
    members = sorted(vars(definition).items())
    own = [_function(value) for _, value in members if getattr(value, "__module__", None) == definition.__module__]
    fields = getattr(definition, "__dataclass_fields__", {})
    plain = [f"{name}={value!r}" for name, value in members if isinstance(value, int | float | str | tuple | dict)
             and not name.startswith("__")]  # fmt: skip
    defaults = [f"{name}: {field.default!r}" for name, field in fields.items()]
    return ADDRESS.sub("", "\n".join([definition.__qualname__, *own, *plain, *defaults]))


def _function(function: Any) -> str:
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):  # typed into an interactive session, or generated
        return f"{code.co_name} {code.co_code.hex()} {code.co_names} {[c for c in code.co_consts if _is_plain(c)]}"


def _is_plain(constant: Any) -> bool:
    """Whether its repr is the same in every process."""
    return isinstance(constant, int | float | str | bytes | None)
