"""UrbanSound8K from its official layout as log-mel spectrograms, float32 [N, 2, 64, 344] in decibels, not normalised.

The circular time shift and the frequency and time masks of the FLea pipeline are training augmentations and not applied
here. A clip shorter than four seconds is padded with zeros on both sides; its position depends only on the seed and its
file name. Spectrograms are cached in `cache` in the dataset folder, because computing all of them takes minutes.
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
from unskew.data.checked_files import missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split
from unskew.data.stratified_split import stratified_mask

NAME = "urbansound8k"
FOLDER = "UrbanSound8K"
RATE, SAMPLES = 44_100, 176_000
N_FFT, HOP, BANDS = 1024, 512, 64
FRAMES = 1 + SAMPLES // HOP
TOP_DB, FLOOR = 80.0, 1e-10
_COLUMNS = ("slice_file_name", "fold", "classID", "class")
_MS_ADPCM, _IMA_ADPCM = 2, 17
ReadClips = Callable[[Path, Sequence["_Clip"], int], torch.Tensor]  # dataset folder, clips and seed to rows


class _Clip(NamedTuple):
    path: Path
    fold: int
    label: int
    class_name: str


def urbansound8k(
    root: Path, *, test: float | None = None, seed: int = 0, read_rows: ReadClips | None = None
) -> Dataset:
    """UrbanSound8K from `UrbanSound8K` under root: float32 [N, 2, 64, 344] of decibels; groups are the ten folds.

    The test rows are a random fraction (0.2) of all clips drawn by `seed`: the split of FLea, not the official folds.
    """
    table = root / FOLDER / "metadata" / "UrbanSound8K.csv"
    if not table.is_file():
        raise missing_files_error(NAME, root, [[table]])
    clips = _read_table(root / FOLDER / "audio", table)
    classes = _classes(table, clips)
    x = (read_rows or _spectrograms)(root, clips, seed)
    y = torch.tensor([clip.label for clip in clips])
    rows = Split(x, y, np.array([clip.fold for clip in clips]))
    # With one class for all rows, stratified sampling is plain random sampling, as in the paper.
    is_test = stratified_mask(np.zeros(len(clips), dtype=np.int64), DEFAULT_TEST if test is None else test, seed, NAME)
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


def pad_or_truncate(signal: np.ndarray, seed: int, name: str) -> np.ndarray:
    """The first 176 000 samples, or all of them padded with zeros to a position drawn from seed and name.

    signal: [C, T]; returns [C, 176000].
    """
    padding = SAMPLES - signal.shape[1]
    if padding <= 0:
        return signal[:, :SAMPLES]
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    before = int.from_bytes(digest, "little") % (padding + 1)
    return np.pad(signal, ((0, 0), (before, padding - before)))


def _read_table(audio: Path, table: Path) -> list[_Clip]:
    """The clips in the order of the table; a clip without a file is refused."""
    text = read_checked(table).decode("utf-8-sig", errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(reader.fieldnames or ())
    absent = [column for column in _COLUMNS if column not in columns]
    if absent:
        raise UserError(
            f"{table}: expected the columns {', '.join(_COLUMNS)}, found {', '.join(columns) or 'none'}; "
            "restore the table from the official archive"
        )
    clips = [_parse_row(audio, table, line, row) for line, row in enumerate(reader, start=2)]
    if len(clips) < 2:
        raise UserError(
            f"{table}: expected a row per clip, found {len(clips)}; restore the table from the official archive"
        )
    absent_clips = [clip.path for clip in clips if not clip.path.is_file()]
    if absent_clips:
        raise UserError(
            f"{absent_clips[0]}: expected a clip listed in {table.name}, found no such file "
            f"({len(absent_clips)} of {len(clips)} clips are missing); unpack the official archive again"
        )
    return clips


def _parse_row(audio: Path, table: Path, line: int, row: dict[str, str | None]) -> _Clip:
    name, fold, label, class_name = values = [(row[column] or "").strip() for column in _COLUMNS]
    # A name that contains folders could point outside the dataset folder.
    if not (
        fold.isdecimal() and label.isdecimal() and class_name and name.endswith(".wav") and Path(name).name == name
    ):
        raise UserError(
            f"{table}: expected a .wav name, a fold, a class number and a class name in line {line}, "
            f"found {', '.join(value or 'nothing' for value in values)}; restore the table of the official archive"
        )
    return _Clip(audio / f"fold{int(fold)}" / name, int(fold), int(label), class_name)


def _classes(table: Path, clips: Sequence[_Clip]) -> tuple[str, ...]:
    """Class names by number; numbers and names must correspond one to one."""
    pairs = sorted({(clip.label, clip.class_name) for clip in clips})
    if [label for label, _ in pairs] != list(range(len(pairs))):
        raise UserError(
            f"{table}: expected class numbers from 0 without gaps and one name for each, found "
            f"{', '.join(f'{label} {name}' for label, name in pairs)}; restore the table of the official archive"
        )
    return tuple(name for _, name in pairs)


def _spectrograms(root: Path, clips: Sequence[_Clip], seed: int) -> torch.Tensor:
    """The spectrograms of all clips, from the cache if it is up to date; returns [N, 2, 64, 344] float32."""
    shape = (len(clips), 2, BANDS, FRAMES)
    file = root / "cache" / f"{NAME}-{_cache_key(clips, seed)}.npy"
    with suppress(OSError, ValueError, EOFError):  # an unreadable cache is computed again
        cached = np.load(file, allow_pickle=False)
        if cached.shape == shape and cached.dtype == np.float32:
            return torch.from_numpy(cached)
    x = torch.empty(shape)
    for row, clip in enumerate(clips):
        x[row] = _spectrogram(clip.path, seed)
    _save(file, x.numpy())
    return x


def _spectrogram(path: Path, seed: int) -> torch.Tensor:
    """One clip as [2, 64, 344]: mono is duplicated, stereo is kept, more channels are refused."""
    rate, signal = _read_wav(path)
    if len(signal) > 2:
        raise UserError(f"{path}: expected one or two channels, found {len(signal)}; unpack the official archive again")
    if rate != RATE:
        signal = resample_poly(signal, RATE // math.gcd(rate, RATE), rate // math.gcd(rate, RATE), axis=1)
    padded = pad_or_truncate(signal, seed, path.name)
    return log_mel(torch.from_numpy(np.ascontiguousarray(padded, dtype=np.float32))).expand(2, -1, -1)


def _cache_key(clips: Sequence[_Clip], seed: int) -> str:
    """A hash of the files' names, sizes and times; increase `v1` when the computation changes."""
    files = [(clip.fold, clip.path.name, clip.path.stat()) for clip in clips]
    text = f"v1 {seed} {[(fold, name, stat.st_size, stat.st_mtime_ns) for fold, name, stat in files]}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _save(file: Path, x: np.ndarray) -> None:
    """Write atomically by renaming; a read-only dataset folder is not an error."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as folder:
            np.save(Path(folder) / "x.npy", x)
            (Path(folder) / "x.npy").replace(file)


def _read_wav(path: Path) -> tuple[int, np.ndarray]:
    """Sample rate, and samples [C, T] float32 from -1 to 1; a truncated file is refused."""
    data = read_checked(path)
    (codec, channels, rate, block), body = _read_chunks(path, data)
    if codec in (_MS_ADPCM, _IMA_ADPCM):
        samples = _decode_adpcm(path, codec, channels, block, body)
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", wavfile.WavFileWarning)  # about unknown chunks, which are harmless
                samples = wavfile.read(io.BytesIO(data))[1]
        except (ValueError, EOFError, struct.error) as error:
            raise _wav_error(path, str(error)) from error
    signal = _to_unit_range(samples.reshape(len(samples), -1)).T
    if rate == 0 or signal.size == 0 or not np.isfinite(signal).all():
        raise _wav_error(path, f"{signal.shape[1]} samples at {rate} Hz, or samples that are not finite")
    return rate, signal


def _wav_error(path: Path, problem: str) -> UserError:
    return UserError(f"{path}: expected a complete wav file, found: {problem}; unpack the official archive again")


def _read_chunks(path: Path, data: bytes) -> tuple[tuple[int, int, int, int], bytes]:
    """Codec, channels, rate and block size; then the sample bytes. SciPy would accept truncated samples silently."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _wav_error(path, f"a file that begins with {data[:12].hex() or 'nothing'}")
    chunks: dict[bytes, bytes] = {}
    offset = 12
    while offset + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, offset)
        body = data[offset + 8 : offset + 8 + size]
        if name == b"data" and len(body) < size:
            raise _wav_error(path, f"only {len(body)} of {size} bytes of samples")
        chunks.setdefault(name, body)
        offset += 8 + size + size % 2
    format_chunk = chunks.get(b"fmt ", b"")
    if len(format_chunk) < 16 or b"data" not in chunks:
        raise _wav_error(path, "no format chunk or no samples")
    codec, channels, rate, _, block, _ = struct.unpack_from("<HHIIHH", format_chunk)
    return (codec, channels, rate, block), chunks[b"data"]


def _to_unit_range(samples: np.ndarray) -> np.ndarray:
    """Float32 from -1 to 1; SciPy returns 24-bit samples as the upper bytes of 32 bits."""
    if samples.dtype == np.uint8:
        samples = (samples.astype(np.int16) - 128).astype(np.int8)
    full_scale = 1.0 if samples.dtype.kind == "f" else 2.0 ** (8 * samples.dtype.itemsize - 1)
    return (samples / full_scale).astype(np.float32)


def _decode_adpcm(path: Path, codec: int, channels: int, block: int, body: bytes) -> np.ndarray:
    """Samples [T, C] int16 of all complete blocks."""
    header = (7 if codec == _MS_ADPCM else 4) * channels
    count = len(body) // block if block else 0
    if channels not in (1, 2) or block <= header or not count:
        raise _wav_error(path, f"ADPCM in blocks of {block} bytes and {channels} channels, {len(body)} bytes")
    blocks = np.frombuffer(body, np.uint8)[: count * block].reshape(count, block)
    headers, codes = blocks[:, :header], blocks[:, header:]
    decode = _decode_microsoft if codec == _MS_ADPCM else _decode_ima
    out = decode(np.ascontiguousarray(headers), codes, channels)  # [T, B, C]
    return out.swapaxes(0, 1).reshape(-1, channels).astype(np.int16)


def _decode_microsoft(headers: np.ndarray, body: np.ndarray, channels: int) -> np.ndarray:
    """Two-tap prediction with an adaptive step size; headers: [B, 7C], body: [B, bytes]; returns [T, B, C]."""
    words = headers[:, channels:].copy().view("<i2").astype(np.int64)
    step, last, before = (words[:, i * channels : (i + 1) * channels] for i in range(3))
    tap1, tap2 = _MS_TAPS[:, np.minimum(headers[:, :channels], 6)]
    codes = np.stack([body >> 4, body & 15], axis=2).reshape(len(body), -1, channels).astype(np.int64)
    out = [before, last]
    for code in codes.swapaxes(0, 1):
        predicted = (last * tap1 + before * tap2) >> 8
        before, last = last, np.clip(predicted + (code - 16 * (code > 7)) * step, -32768, 32767)
        step = np.maximum(_MS_ADAPTATION[code] * step >> 8, 16)
        out.append(last)
    return np.stack(out)


def _decode_ima(headers: np.ndarray, body: np.ndarray, channels: int) -> np.ndarray:
    """Differences in steps from a fixed table; headers: [B, 4C], body: [B, bytes]; returns [T, B, C]."""
    headers = headers.reshape(len(headers), channels, 4)
    last = headers[:, :, :2].copy().view("<i2")[:, :, 0].astype(np.int64)
    index = np.minimum(headers[:, :, 2], 88).astype(np.int64)
    groups = body[:, : body.shape[1] // (4 * channels) * 4 * channels].reshape(len(body), -1, channels, 4)
    codes = np.stack([groups & 15, groups >> 4], axis=4).reshape(*groups.shape[:3], 8).swapaxes(2, 3)
    out = [last]
    for code in codes.reshape(len(body), -1, channels).swapaxes(0, 1).astype(np.int64):
        step = _IMA_STEPS[index]
        size = (step >> 3) + step * (code >> 2 & 1) + (step >> 1) * (code >> 1 & 1) + (step >> 2) * (code & 1)
        last = np.clip(last + np.where(code & 8, -size, size), -32768, 32767)
        index = np.clip(index + _IMA_INDEX_CHANGES[code & 7], 0, 88)
        out.append(last)
    return np.stack(out)


_MS_TAPS = np.array([[256, 512, 0, 192, 240, 460, 392], [0, -256, 0, 64, 0, -208, -232]])
_MS_ADAPTATION = np.array([230, 230, 230, 230, 307, 409, 512, 614, 768, 614, 512, 409, 307, 230, 230, 230])
_IMA_INDEX_CHANGES = np.array([-1, -1, -1, -1, 2, 4, 6, 8])
_IMA_TEXT = """
7 8 9 10 11 12 13 14 16 17 19 21 23 25 28 31 34 37 41 45 50 55 60 66 73 80 88 97 107 118 130 143 157 173 190 209 230
253 279 307 337 371 408 449 494 544 598 658 724 796 876 963 1060 1166 1282 1411 1552 1707 1878 2066 2272 2499 2749
3024 3327 3660 4026 4428 4871 5358 5894 6484 7132 7845 8630 9493 10442 11487 12635 13899 15289 16818 18500 20350 22385
24623 27086 29794 32767
"""
_IMA_STEPS = np.array(_IMA_TEXT.split(), dtype=np.int64)
