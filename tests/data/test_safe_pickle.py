"""The pickle reader: it agrees with pickle on plain data and never executes code from a file."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.base.errors import UserError
from unskew.data import safe_pickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.binary(min_size=1, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(PLAIN)
def test_plain_values_come_back(value: object) -> None:
    assert safe_pickle.load(pickle.dumps(value, protocol=2), "made") == value


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i4", "<i8", "<f4", "f8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back(dtype: str, order: str) -> None:
    array = np.asarray(np.arange(24).reshape(2, 3, 4).astype(dtype), order=order)  # type: ignore[call-overload]
    value = safe_pickle.load(pickle.dumps({"a": array, "again": array}, protocol=2), "made")
    assert value["a"].dtype == array.dtype
    assert np.array_equal(value["a"], array)
    assert np.array_equal(value["again"], array)


def python2_batch(pixels: bytes, rows: int) -> bytes:
    """The opcodes that Python 2 wrote for a dict with an array."""
    shape = b"M" + rows.to_bytes(2, "little") + b"K" + bytes([len(pixels) // rows])
    return (
        b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x00K\x01eU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05"
        b"cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01bq\x08\x87q\tRq\n(K\x01" + shape + b"\x86q\x0bcnumpy\ndtype\nq\x0c"
        b"U\x02u1q\rK\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01|q\x10NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + len(pixels).to_bytes(4, "little") + pixels + b"tbu."
    )


def test_python_2_strings_are_bytes() -> None:
    pixels = bytes(range(250, 256)) + bytes(6)
    value = safe_pickle.load(python2_batch(pixels, rows=2), "made")
    assert value[b"labels"] == [0, 1]
    assert value[b"data"].tobytes() == pixels
    assert value[b"data"].shape == (2, 6)


def test_a_pickle_that_would_run_a_command_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    command = f"touch {trace}".encode()
    malicious = b"cposix\nsystem\n(X" + len(command).to_bytes(4, "little") + command + b"tR."
    with pytest.raises(UserError, match=r"batch_1.*GLOBAL at byte 0.*posix\.system.*nothing in it was run"):
        safe_pickle.load(malicious, "batch_1")
    assert not trace.exists()


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("1/0",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_objects_are_refused_in_every_protocol(protocol: int) -> None:
    with pytest.raises(UserError, match="nothing in it was run"):
        safe_pickle.load(pickle.dumps({"data": Evil()}, protocol=protocol), "made")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a pickle",
        b"\x80\x02]q\x00(K\x01",  # cut short
        b"\x80\x02K\x01K\x02.",  # two values left
        b"\x80\x02.",  # no value left
        b"\x80\x02h\x05.",  # memo never filled
        b"\x80\x02e.",  # no mark
        b"\x80\x02K\x01K\x02a.",  # append to a number
        b"\x80\x02}(K\x01u.",  # key without value
        b"\x80\x02}]K\x01s.",  # list as key
        b"\x80\x02K\x01K\x02b.",  # state for a number
        b"\x80\x02K\x01)R.",  # call of a number
        b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00O8\x85R.",  # array of objects
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
        b"\x80\x02\x85.",  # tuple from an empty stack
    ],
)
def test_broken_streams_are_refused(data: bytes) -> None:
    with pytest.raises(UserError, match=r"some/file: expected a pickle of plain values"):
        safe_pickle.load(data, "some/file")


def error_message(data: bytes) -> str:
    """The reader's error for random bytes, which may by chance be readable."""
    try:
        safe_pickle.load(data, "noise")
    except UserError as error:
        return str(error)
    return "noise: readable"


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_user_error(data: bytes) -> None:
    assert error_message(b"\x80\x02" + data).startswith("noise: ")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_gives_a_value_or_a_user_error(position: int, value: int) -> None:
    stream = bytearray(python2_batch(bytes(12), rows=2))
    stream[position % len(stream)] = value
    assert error_message(bytes(stream)).startswith("noise: ")


def test_a_wrong_shape_is_refused() -> None:
    stream = python2_batch(bytes(12), rows=2).replace(b"K\x06", b"K\x07")
    with pytest.raises(UserError, match="BUILD"):
        safe_pickle.load(stream, "made")
