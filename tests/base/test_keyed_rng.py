"""Keys of random generators have distinct hashes."""

from unskew.base.keyed_rng import hash_key


def test_similar_keys_have_different_hashes() -> None:
    """Lengths and types are hashed; hashes have the requested number of bits."""
    keys = [("a", "bc"), ("ab", "c"), ("abc",), (1, 23), (12, 3), ("1", 23), ("a|str2:bc",)]
    numbers = {hash_key(*key) for key in keys}
    assert len(numbers) == len(keys)
    assert all(0 <= n < 2**32 for n in numbers)
    assert max(hash_key(*key, bits=128) for key in keys).bit_length() > 120
