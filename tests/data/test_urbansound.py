"""UrbanSound8K in a small folder: every wav codec, exact spectrograms, the split, and errors that name the file."""

import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from unskew.base.errors import UserError
from unskew.data import load
from unskew.data.urbansound import SAMPLES, _read_wav, log_mel, mel_bank, pad_or_truncate

WORDS = ("air_conditioner", "car_horn", "dog_bark")


def tone(rate: int, seconds: float, pitch: float = 1000.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)


def riff(tag: int, channels: int, rate: int, block: int, bits: int, body: bytes, extra: bytes = b"") -> bytes:
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits) + extra
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def write_dataset(root: Path, clips: int = 6) -> Path:
    """Clips over two folds and three classes; returns the table."""
    base = root / "UrbanSound8K"
    lines = ["slice_file_name,fsID,start,end,salience,fold,classID,class"]
    for i in range(clips):
        fold, label = i % 2 + 1, i % 3
        folder = base / "audio" / f"fold{fold}"
        folder.mkdir(parents=True, exist_ok=True)
        samples = (tone(8000, 0.5, 500.0 * (label + 1)) * 32767).astype(np.int16)
        wavfile.write(folder / f"{i}.wav", 8000, samples if i else np.stack([samples, samples // 2], 1))
        lines.append(f"{i}.wav,{i},0,0.5,1,{fold},{label},{WORDS[label]}")
    table = base / "metadata" / "UrbanSound8K.csv"
    table.parent.mkdir(parents=True)
    table.write_text("\n".join(lines) + "\n")
    return table


def test_clips_become_spectrograms(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    data = load("urbansound8k", tmp_path)
    assert data.classes == WORDS
    assert (data.shape, len(data.train), len(data.test)) == ((2, 64, 344), 5, 1)
    assert data.train.x.dtype == torch.float32
    assert data.train.group is not None
    assert set(data.train.group.tolist()) <= {1, 2}
    rows = torch.cat([data.train.x, data.test.x])
    assert float((rows.amax((1, 2, 3)) - rows.amin((1, 2, 3))).max()) <= 80.001
    stereo = [bool((row[0] != row[1]).any()) for row in rows]
    assert sum(stereo) == 1, "mono is duplicated, stereo keeps its channels"


def test_rows_depend_on_the_seed_and_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path)
    first = load("urbansound8k", tmp_path, seed=1)
    (cached,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr("unskew.data.urbansound._spectrogram", lambda *a: pytest.fail("computed again"))
    assert torch.equal(load("urbansound8k", tmp_path, seed=1).train.x, first.train.x)
    monkeypatch.undo()
    cached.write_bytes(b"broken")
    assert torch.equal(load("urbansound8k", tmp_path, seed=1).test.x, first.test.x)
    changed = tmp_path / "UrbanSound8K/audio/fold1/0.wav"
    os.utime(changed, ns=(1, 1))
    load("urbansound8k", tmp_path, seed=1)
    assert len(list((tmp_path / "cache").iterdir())) == 2, "a changed clip is not read from the cache"


def test_the_split_is_random_over_all_clips(tmp_path: Path) -> None:
    write_dataset(tmp_path, 20)
    one, other = (load("urbansound8k", tmp_path, seed=seed) for seed in (0, 1))
    assert len(one.test) == len(other.test) == 4
    assert one.test.y.tolist() != other.test.y.tolist() or not torch.equal(one.test.x, other.test.x)
    assert len(load("urbansound8k", tmp_path, test=0.5).test) == 10


@pytest.mark.parametrize("pitch", [440.0, 1000.0, 5000.0, 12000.0])
def test_a_tone_peaks_in_its_band(pitch: float) -> None:
    signal = torch.from_numpy(tone(44100, 4.0, pitch).astype(np.float32))[None, :SAMPLES]
    out = log_mel(signal)
    assert out.shape == (1, 64, 344)
    top = 2595 * math.log10(1 + 22050 / 700)
    band = 2595 * math.log10(1 + pitch / 700) / top * 65 - 1  # band i peaks at mel (i + 1) of 65 steps
    assert abs(int(out[0, :, 100].argmax()) - band) <= 1


def test_the_level_of_a_tone_matches_hand_computation() -> None:
    """A tone of amplitude a on bin k has power (a N / 4)^2 there and a quarter of it in each neighbour."""
    k = 100
    wave = 0.5 * torch.cos(2 * math.pi * k * torch.arange(44100, dtype=torch.float64) / 1024)[None]
    bank = mel_bank(64, 44100, 1024).double()
    peak = (0.5 * 1024 / 4) ** 2
    expected = 10 * torch.log10(peak * (bank[k] + bank[k - 1] / 4 + bank[k + 1] / 4).max())
    assert float(log_mel(wave)[0, :, 40].max()) == pytest.approx(float(expected), abs=1e-3)


def test_edges_are_mirrored() -> None:
    """A constant is mirrored as itself at both ends, so the outer frames equal the inner ones; zeros would differ."""
    out = log_mel(torch.ones(1, 10 * 512, dtype=torch.float64))
    assert torch.allclose(out[..., :1], out[..., 5:6])
    assert torch.allclose(out[..., -1:], out[..., 5:6])


def test_silence_gives_the_floor() -> None:
    assert torch.equal(log_mel(torch.zeros(1, SAMPLES)), torch.full((1, 64, 344), -100.0))


def test_mel_bands_are_triangles_on_the_mel_scale() -> None:
    """Two bands to 4 kHz: edges at thirds of the mel scale, rising and falling in straight lines."""
    top = 2595 * math.log10(1 + 4000 / 700)
    low, mid, high, end = (700 * (10 ** (top * i / 3 / 2595) - 1) for i in range(4))
    bank = mel_bank(2, 8000, 8)
    assert bank[0].tolist() == [0, 0]
    assert bank[1, 0] == pytest.approx((high - 1000) / (high - mid))
    assert bank[1, 1] == pytest.approx((1000 - mid) / (high - mid))
    assert bank[3, 1] == pytest.approx((end - 3000) / (end - high))
    assert low == 0


def test_clips_are_padded_or_truncated_to_a_fixed_length() -> None:
    signal = np.ones((1, 1000), dtype=np.float32)
    positions = {int(pad_or_truncate(signal, seed, "a.wav")[0].argmax()) for seed in range(5)}
    assert len(positions) == 5
    assert np.array_equal(pad_or_truncate(signal, 3, "a.wav"), pad_or_truncate(signal, 3, "a.wav"))
    assert int(pad_or_truncate(signal, 3, "a.wav").sum()) == 1000
    long = np.arange(SAMPLES + 5, dtype=np.float32)[None]
    assert np.array_equal(pad_or_truncate(long, 0, "b.wav"), long[:, :SAMPLES])


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["uint8", "int16", "int24", "int32", "float32", "float64"])
def test_every_sample_format_is_read(tmp_path: Path, kind: str, channels: int) -> None:
    expected = np.stack([tone(8000, 0.1), -tone(8000, 0.1)][:channels], axis=1)
    path = tmp_path / "a.wav"
    if kind == "int24":
        integers = np.round(expected * 2**23).astype("<i4")
        body = integers.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        path.write_bytes(riff(1, channels, 8000, 3 * channels, 24, body))
    elif kind.startswith("float"):
        wavfile.write(path, 8000, expected.astype(kind))
    else:
        info = np.iinfo(kind)
        centre = 128 if kind == "uint8" else 0
        wavfile.write(path, 8000, np.round(expected * (2 ** (info.bits - 1)) + centre).astype(kind))
    rate, samples = _read_wav(path)
    assert rate == 8000
    assert samples.shape == (channels, 800)
    assert np.abs(samples.T - expected).max() < (0.005 if kind == "uint8" else 1e-4)


def test_ima_adpcm_is_decoded(tmp_path: Path) -> None:
    """Codes 4 and 12 from step 7: +7 + 0, then with step 9 minus (9 + 1); code 0 adds an eighth of step 11."""
    body = struct.pack("<hBB", 100, 0, 0) + bytes([4 | 12 << 4, 0, 0, 0])
    (tmp_path / "a.wav").write_bytes(riff(17, 1, 8000, 8, 4, body, struct.pack("<HH", 2, 9)))
    rate, samples = _read_wav(tmp_path / "a.wav")
    assert (samples[0, :4] * 32768).tolist() == [100, 107, 97, 98]
    assert (rate, samples.shape) == (8000, (1, 9))


def test_microsoft_adpcm_is_decoded(tmp_path: Path) -> None:
    """Taps 256 and 0 repeat the last sample; code 1 adds one step of 16, code 15 takes one away."""
    body = struct.pack("<Bhhh", 0, 16, 50, 40) + bytes([1 << 4 | 15])
    (tmp_path / "a.wav").write_bytes(riff(2, 1, 8000, 8, 4, body * 2, struct.pack("<HH", 2, 4)))
    samples = _read_wav(tmp_path / "a.wav")[1]
    assert (samples[0] * 32768).tolist() == [40, 50, 66, 50] * 2


def test_adpcm_stereo_keeps_channels_apart(tmp_path: Path) -> None:
    body = struct.pack("<hBBhBB", 100, 0, 0, -100, 0, 0) + bytes([4, 0, 0, 0]) + bytes([12, 0, 0, 0])
    (tmp_path / "a.wav").write_bytes(riff(17, 2, 8000, 16, 4, body, struct.pack("<HH", 2, 9)))
    samples = _read_wav(tmp_path / "a.wav")[1] * 32768
    assert samples[:, :2].tolist() == [[100, 107], [-100, -107]]


@pytest.mark.parametrize("keep", [0, 3, 20, 50, 4000])
def test_truncated_clip_is_refused(tmp_path: Path, keep: int) -> None:
    write_dataset(tmp_path)
    clip = tmp_path / "UrbanSound8K/audio/fold2/1.wav"
    clip.write_bytes(clip.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"1\.wav: expected a complete wav file.*unpack"):
        load("urbansound8k", tmp_path)


def test_missing_clip_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    (tmp_path / "UrbanSound8K/audio/fold2/3.wav").unlink()
    with pytest.raises(UserError, match=r"3\.wav: expected a clip listed in UrbanSound8K\.csv.*1 of 6"):
        load("urbansound8k", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classID", "klass", "expected the columns"),
        ("2.wav,2,0,0.5,1,1,2", "2.wav,2,0,0.5,1,one,2", "line 4"),
        ("2.wav,2", "../../2.wav,2", "line 4"),
        ("1,2,1,car_horn", "1,2,7,car_horn", "without gaps"),
        ("1,2,1,car_horn", "1,2,0,car_horn", "one name for each"),
    ],
)
def test_bad_table_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    table = write_dataset(tmp_path)
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=rf"UrbanSound8K\.csv: .*{message}"):
        load("urbansound8k", tmp_path)
