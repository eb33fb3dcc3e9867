"""Keys of random generators."""

from unskew.base.keyed_rng import key_of


def test_keys_that_look_alike_differ() -> None:
    """Lengths and types are part of the key; numbers have the bits that were asked for."""
    keys = [("a", "bc"), ("ab", "c"), ("abc",), (1, 23), (12, 3), ("1", 23), ("a|str2:bc",)]
    numbers = {key_of(*key) for key in keys}
    assert len(numbers) == len(keys)
    assert all(0 <= n < 2**32 for n in numbers)
    assert max(key_of(*key, bits=128) for key in keys).bit_length() > 120
