"""UrbanSound8K from its official tree as log-mel spectrograms, float32 [N, 2, 64, 344] in decibels, not normalised.

The circular time shift and the frequency and time masks of the FLea pipeline are training augmentations and are left
out here. A clip shorter than four seconds gets its zeros around a position that depends on the seed and its file name
alone. Spectrograms are kept under `cache` in the data folder, since making all of them takes minutes.
"""

import csv
import hashlib
import io
import math
import struct
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from scipy.io import wavfile
from scipy.signal import resample_poly

from unskew.base.errors import UserError
from unskew.data.arrays import DEFAULT_TEST, split_rows
from unskew.data.checked_files import missing, read_checked
from unskew.data.dataset import Dataset, Split
from unskew.data.stratified_split import stratified

NAME = "urbansound8k"
FOLDER = "UrbanSound8K"
RATE, SAMPLES = 44_100, 176_000
N_FFT, HOP, BANDS = 1024, 512, 64
FRAMES = 1 + SAMPLES // HOP
TOP_DB, FLOOR = 80.0, 1e-10
_COLUMNS = ("slice_file_name", "fold", "classID", "class")
_MS_ADPCM, _IMA_ADPCM = 2, 17
Gather = Callable[[Path, Sequence["_Clip"], int], torch.Tensor]  # how the clips become rows


class _Clip(NamedTuple):
    path: Path
    fold: int
    label: int
    word: str


def urbansound8k(root: Path, *, test: float | None = None, seed: int = 0, gather: Gather | None = None) -> Dataset:
    """UrbanSound8K from `UrbanSound8K` under root: float32 [N, 2, 64, 344] of decibels; groups are the ten folds.

    The test rows are a random fraction (0.2) of all clips, pure in `seed`: the split of FLea, not the official folds.
    """
    table = root / FOLDER / "metadata" / "UrbanSound8K.csv"
    if not table.is_file():
        raise missing(NAME, root, [[table]])
    clips = _clips(root / FOLDER / "audio", table)
    classes = _classes(table, clips)
    x = (gather or _spectrograms)(root, clips, seed)
    y = torch.tensor([clip.label for clip in clips])
    rows = Split(x, y, np.array([clip.fold for clip in clips]))
    # One class for all rows makes the stratified choice a plain random one, as in the paper.
    is_test = stratified(np.zeros(len(clips), dtype=np.int64), DEFAULT_TEST if test is None else test, seed, NAME)
    return split_rows(NAME, rows, classes, is_test, None, seed)


def log_mel(signal: torch.Tensor) -> torch.Tensor:
    """Mel power spectrogram in decibels, at most 80 below the loudest value of the clip.

    signal: [C, T] at 44.1 kHz; returns [C, 64, 1 + T // 512].
    """
    window = torch.hann_window(N_FFT, periodic=True, dtype=signal.dtype)
    wave = torch.stft(signal, N_FFT, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = mel_bank(BANDS, RATE, N_FFT).to(signal.dtype).T @ wave.abs().square()
    decibels = 10 * torch.log10(power.clamp(min=FLOOR))
    return decibels.clamp(min=float(decibels.max()) - TOP_DB)


@lru_cache
def mel_bank(bands: int, rate: int, n_fft: int) -> torch.Tensor:
    """Triangular filters of peak 1, evenly spaced on the HTK mel scale to rate / 2; returns [n_fft / 2 + 1, bands].

    >>> mel_bank(2, 8000, 8).shape
    torch.Size([5, 2])
    """
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2, dtype=torch.float64) / 2595) - 1)
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)[:, None]
    rise = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0).float()


def fixed_length(signal: np.ndarray, seed: int, name: str) -> np.ndarray:
    """The first 176 000 samples, or all of them amid zeros at a place set by seed and name.

    signal: [C, T]; returns [C, 176000].
    """
    spare = SAMPLES - signal.shape[1]
    if spare <= 0:
        return signal[:, :SAMPLES]
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    before = int.from_bytes(digest, "little") % (spare + 1)
    return np.pad(signal, ((0, 0), (before, spare - before)))


def _clips(audio: Path, table: Path) -> list[_Clip]:
    """The clips in the order of the table, each of them a file that is there."""
    text = read_checked(table).decode("utf-8-sig", errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    found = tuple(reader.fieldnames or ())
    absent = [column for column in _COLUMNS if column not in found]
    if absent:
        raise UserError(
            f"{table}: expected the columns {', '.join(_COLUMNS)}, found {', '.join(found) or 'none'}; "
            "restore the table of the official archive"
        )
    clips = [_clip(audio, table, line, row) for line, row in enumerate(reader, start=2)]
    if len(clips) < 2:
        raise UserError(f"{table}: expected a row per clip, found {len(clips)}; restore the table of the archive")
    gone = [clip.path for clip in clips if not clip.path.is_file()]
    if gone:
        raise UserError(
            f"{gone[0]}: expected a clip that {table.name} lists, found no such file "
            f"({len(gone)} of {len(clips)} clips are missing); unpack the official archive again"
        )
    return clips


def _clip(audio: Path, table: Path, line: int, row: dict[str, str | None]) -> _Clip:
    name, fold, label, word = values = [(row[column] or "").strip() for column in _COLUMNS]
    # A name with folders in it could lead out of the tree.
    if not (fold.isdecimal() and label.isdecimal() and word and name.endswith(".wav") and Path(name).name == name):
        raise UserError(
            f"{table}: expected a .wav name, a fold, a class number and a class name in line {line}, "
            f"found {', '.join(value or 'nothing' for value in values)}; restore the table of the official archive"
        )
    return _Clip(audio / f"fold{int(fold)}" / name, int(fold), int(label), word)


def _classes(table: Path, clips: Sequence[_Clip]) -> tuple[str, ...]:
    """Class names by number, refused unless numbers and names belong together one to one."""
    pairs = sorted({(clip.label, clip.word) for clip in clips})
    if [label for label, _ in pairs] != list(range(len(pairs))):
        raise UserError(
            f"{table}: expected class numbers from 0 without gaps and one name for each, found "
            f"{', '.join(f'{label} {word}' for label, word in pairs)}; restore the table of the official archive"
        )
    return tuple(word for _, word in pairs)


def _spectrograms(root: Path, clips: Sequence[_Clip], seed: int) -> torch.Tensor:
    """All clips, from the cache if it holds exactly these; returns [N, 2, 64, 344] float32."""
    shape = (len(clips), 2, BANDS, FRAMES)
    file = root / "cache" / f"{NAME}-{_key(clips, seed)}.npy"
    with suppress(OSError, ValueError, EOFError):  # an unreadable cache is made anew
        kept = np.load(file, allow_pickle=False)
        if kept.shape == shape and kept.dtype == np.float32:
            return torch.from_numpy(kept)
    x = torch.empty(shape)
    for row, clip in enumerate(clips):
        x[row] = _spectrogram(clip.path, seed)
    _keep(file, x.numpy())
    return x


def _spectrogram(path: Path, seed: int) -> torch.Tensor:
    """One clip; returns [2, 64, 344]: mono is doubled, stereo stays, further channels are refused."""
    rate, signal = _read_wav(path)
    if len(signal) > 2:
        raise UserError(f"{path}: expected one or two channels, found {len(signal)}; unpack the official archive again")
    if rate != RATE:
        signal = resample_poly(signal, RATE // math.gcd(rate, RATE), rate // math.gcd(rate, RATE), axis=1)
    fixed = fixed_length(signal, seed, path.name)
    return log_mel(torch.from_numpy(np.ascontiguousarray(fixed, dtype=np.float32))).expand(2, -1, -1)


def _key(clips: Sequence[_Clip], seed: int) -> str:
    """A name for the spectrograms of these files as they are now; `v1` changes when the numbers would."""
    files = [(clip.fold, clip.path.name, clip.path.stat()) for clip in clips]
    text = f"v1 {seed} {[(fold, name, stat.st_size, stat.st_mtime_ns) for fold, name, stat in files]}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _keep(file: Path, x: np.ndarray) -> None:
    """Write beside, then rename; a data folder that cannot be written to is no reason to fail."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as folder:
            np.save(Path(folder) / "x.npy", x)
            (Path(folder) / "x.npy").replace(file)


def _read_wav(path: Path) -> tuple[int, np.ndarray]:
    """Sample rate and samples from -1 to 1; refused by name when cut short; samples: [C, T] float32."""
    data = read_checked(path)
    (tag, channels, rate, block), body = _chunks(path, data)
    if tag in (_MS_ADPCM, _IMA_ADPCM):
        samples = _adpcm(path, tag, channels, block, body)
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks it does not know, which are harmless
                samples = wavfile.read(io.BytesIO(data))[1]
        except (ValueError, EOFError, struct.error) as error:
            raise _refused(path, str(error)) from error
    signal = _scaled(samples.reshape(len(samples), -1)).T
    if rate == 0 or signal.size == 0 or not np.isfinite(signal).all():
        raise _refused(path, f"{signal.shape[1]} samples at {rate} Hz, or samples that are no numbers")
    return rate, signal


def _refused(path: Path, found: str) -> UserError:
    return UserError(f"{path}: expected a complete wav file, found: {found}; unpack the official archive again")


def _chunks(path: Path, data: bytes) -> tuple[tuple[int, int, int, int], bytes]:
    """Code, channels, rate, block size; then the samples, refused if cut short, which SciPy would pass over."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _refused(path, f"a file beginning with {data[:12].hex() or 'nothing'}")
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        body = data[at + 8 : at + 8 + size]
        if name == b"data" and len(body) < size:
            raise _refused(path, f"{len(body)} of {size} bytes of samples, so it is truncated")
        chunks.setdefault(name, body)
        at += 8 + size + size % 2
    form = chunks.get(b"fmt ", b"")
    if len(form) < 16 or b"data" not in chunks:
        raise _refused(path, "no format or no samples, so it is truncated")
    tag, channels, rate, _, block, _ = struct.unpack_from("<HHIIHH", form)
    return (tag, channels, rate, block), chunks[b"data"]


def _scaled(samples: np.ndarray) -> np.ndarray:
    """Float32 from -1 to 1; SciPy gives 24 bits as the upper bytes of 32."""
    if samples.dtype == np.uint8:
        samples = (samples.astype(np.int16) - 128).astype(np.int8)
    full = 1.0 if samples.dtype.kind == "f" else 2.0 ** (8 * samples.dtype.itemsize - 1)
    return (samples / full).astype(np.float32)


def _adpcm(path: Path, tag: int, channels: int, block: int, body: bytes) -> np.ndarray:
    """Samples [T, C] int16 of all whole blocks."""
    header = (7 if tag == _MS_ADPCM else 4) * channels
    whole = len(body) // block if block else 0
    if channels not in (1, 2) or block <= header or not whole:
        raise _refused(path, f"ADPCM in blocks of {block} bytes and {channels} channels, {len(body)} bytes")
    blocks = np.frombuffer(body, np.uint8)[: whole * block].reshape(whole, block)
    top, rest = blocks[:, :header], blocks[:, header:]
    decode = _microsoft if tag == _MS_ADPCM else _ima
    out = decode(np.ascontiguousarray(top), rest, channels)  # [T, B, C]
    return out.swapaxes(0, 1).reshape(-1, channels).astype(np.int16)


def _microsoft(top: np.ndarray, rest: np.ndarray, channels: int) -> np.ndarray:
    """Two-tap prediction with a step that adapts; top: [B, 7C], rest: [B, bytes]; returns [T, B, C]."""
    words = top[:, channels:].copy().view("<i2").astype(np.int64)
    step, last, before = (words[:, i * channels : (i + 1) * channels] for i in range(3))
    one, two = _MS_TAPS[:, np.minimum(top[:, :channels], 6)]
    codes = np.stack([rest >> 4, rest & 15], axis=2).reshape(len(rest), -1, channels).astype(np.int64)
    out = [before, last]
    for code in codes.swapaxes(0, 1):
        guess = (last * one + before * two) >> 8
        before, last = last, np.clip(guess + (code - 16 * (code > 7)) * step, -32768, 32767)
        step = np.maximum(_MS_GROWTH[code] * step >> 8, 16)
        out.append(last)
    return np.stack(out)


def _ima(top: np.ndarray, rest: np.ndarray, channels: int) -> np.ndarray:
    """Differences in steps from a fixed table; top: [B, 4C], rest: [B, bytes]; returns [T, B, C]."""
    heads = top.reshape(len(top), channels, 4)
    last = heads[:, :, :2].copy().view("<i2")[:, :, 0].astype(np.int64)
    place = np.minimum(heads[:, :, 2], 88).astype(np.int64)
    groups = rest[:, : rest.shape[1] // (4 * channels) * 4 * channels].reshape(len(rest), -1, channels, 4)
    codes = np.stack([groups & 15, groups >> 4], axis=4).reshape(*groups.shape[:3], 8).swapaxes(2, 3)
    out = [last]
    for code in codes.reshape(len(rest), -1, channels).swapaxes(0, 1).astype(np.int64):
        step = _IMA_STEPS[place]
        size = (step >> 3) + step * (code >> 2 & 1) + (step >> 1) * (code >> 1 & 1) + (step >> 2) * (code & 1)
        last = np.clip(last + np.where(code & 8, -size, size), -32768, 32767)
        place = np.clip(place + _IMA_MOVES[code & 7], 0, 88)
        out.append(last)
    return np.stack(out)


_MS_TAPS = np.array([[256, 512, 0, 192, 240, 460, 392], [0, -256, 0, 64, 0, -208, -232]])
_MS_GROWTH = np.array([230, 230, 230, 230, 307, 409, 512, 614, 768, 614, 512, 409, 307, 230, 230, 230])
_IMA_MOVES = np.array([-1, -1, -1, -1, 2, 4, 6, 8])
_IMA_TEXT = """
7 8 9 10 11 12 13 14 16 17 19 21 23 25 28 31 34 37 41 45 50 55 60 66 73 80 88 97 107 118 130 143 157 173 190 209 230
253 279 307 337 371 408 449 494 544 598 658 724 796 876 963 1060 1166 1282 1411 1552 1707 1878 2066 2272 2499 2749
3024 3327 3660 4026 4428 4871 5358 5894 6484 7132 7845 8630 9493 10442 11487 12635 13899 15289 16818 18500 20350 22385
24623 27086 29794 32767
"""
_IMA_STEPS = np.array(_IMA_TEXT.split(), dtype=np.int64)
