"""The fixtures of the tests of runs."""

from runner.conftest import _parts, hears_ctrl_c, many, no_data, played, played_once, recipe, short_page, unskew

__all__ = ["_parts", "hears_ctrl_c", "many", "no_data", "played", "played_once", "recipe", "short_page", "unskew"]
