"""The GGUF reader: against the gguf package on the real file, and on files that are broken in any
way."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import gguf as oracle
import numpy as np
import pytest
from gguf_maker import ARRAY, BOOL, F64, STRING, U64, Maker, Tensor, string, tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.errors import ModelFileError
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF
from terrazzo.models.metadata import Cursor, index_strings
from terrazzo.models.tokenizer import Tokenizer


def test_agrees_with_the_gguf_package(model_path: Path, model: GGUF) -> None:
    theirs = oracle.GGUFReader(model_path)
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert set(model.metadata) == set(fields)
    for key, theirs_field in fields.items():
        ours, expected = model.metadata[key], theirs_field.contents()
        ours = ours.tolist() if isinstance(ours, np.ndarray) else ours
        assert ours == expected and type(ours) is type(expected), key
        assert model.metadata.length(key) == (len(expected) if isinstance(expected, list) else None)
    assert list(model.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        info = model.tensors[tensor.name]
        assert info.shape == tuple(int(extent) for extent in tensor.shape[::-1])
        assert (info.type, info.offset) == (tensor.tensor_type.name, tensor.data_offset)
        assert (info.size, info.nbytes) == (tensor.n_elements, tensor.n_bytes)
    for tensor in theirs.tensors[::37]:
        theirs_bytes = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
        assert np.array_equal(model.raw(tensor.name), theirs_bytes)


def test_opening_costs_milliseconds(model_path: Path) -> None:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        GGUF.open(model_path)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1  # about 0.012 s on an idle core; decoding the strings would double it


def test_raw_is_a_read_only_view_that_outlives_the_reader(tmp_path: Path) -> None:
    maker = Maker({}, [Tensor("a", (4,), data=bytes(range(16)))])
    reader = GGUF.open(write(tmp_path, maker.build()))
    view = reader.raw("a")
    assert view.base is not None and not view.flags.writeable
    del reader
    assert view.tolist() == list(range(16))


def test_release_gives_pages_back_and_data_stays_readable(model_path: Path) -> None:
    reader = GGUF.open(model_path)
    name = "token_embd.weight"
    size = reader.tensors[name].nbytes
    total = int(reader.raw(name).sum(dtype=np.int64))
    before = resident_file_bytes()
    reader.release(name)
    assert before - resident_file_bytes() > 0.9 * size
    assert int(reader.raw(name).sum(dtype=np.int64)) == total
    reader.release_all()
    assert reader.metadata["general.architecture"] == "llama"


def test_every_scalar_and_array_type(tmp_path: Path) -> None:
    scalars = {0: 255, 1: -1, 2: 65535, 3: -2, 4: 2**32 - 1, 5: -3, 6: 0.5, 7: 1, U64: 2**64 - 1}
    scalars |= {11: -(2**63), F64: 1e300}
    array = struct.pack("<IIQ3H", ARRAY, 2, 3, 1, 2, 65535)
    flags = struct.pack("<IIQ3B", ARRAY, BOOL, 3, 1, 0, 1)
    metadata = {f"k{kind}": (kind, number) for kind, number in scalars.items()}
    maker = Maker({**metadata, "a": array, "f": flags, "s": "é", "e": [], "l": ["", "x\0y"]})
    found = GGUF.open(write(tmp_path, maker.build())).metadata
    for kind, number in scalars.items():
        assert found[f"k{kind}"] == number
    assert found["k7"] is True
    numbers, bools = found["a"], found["f"]
    assert isinstance(numbers, np.ndarray) and numbers.tolist() == [1, 2, 65535]
    assert isinstance(bools, np.ndarray) and bools.tolist() == [True, False, True]
    assert (found["s"], found["e"], found["l"]) == ("é", [], ["", "x\0y"])
    assert "missing" not in found and found.length("s") is None and len(found) == len(list(found))


texts = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.integers(250, 600).map(lambda n: "x" * n),
        st.sampled_from(["", "\0", "\0" * 9, "a\0\0\0\0\0\0\0b", "é" * 40_000]),
    ),
    max_size=60,
)


@given(texts, st.binary(max_size=40))
def test_string_arrays_are_found_whatever_they_hold(items: list[str], tail: bytes) -> None:
    raw = b"".join(string(item) for item in items)
    cursor = Cursor(np.frombuffer(b"??" + raw + tail, np.uint8), "f")
    cursor.pos = 2
    starts = index_strings(cursor, len(items), "x")
    assert cursor.pos == 2 + len(raw)
    ends = [int(start) - 8 for start in starts[1:]]
    encoded = [item.encode() for item in items]
    assert [cursor.data[a:b].tobytes() for a, b in zip(starts, ends, strict=False)] == encoded


def test_long_string_arrays(tmp_path: Path) -> None:
    rng = random.Random(1)
    items = [rng.choice("aé日🙂") * rng.choice((0, 1, 2, 3, 70, 300)) for _ in range(20_000)]
    clean = [f"token{i}" for i in range(20_000)]
    reader = GGUF.open(write(tmp_path, Maker({"a": items, "b": clean, "c": 7}).build()))
    assert (reader.metadata["a"], reader.metadata["b"], reader.metadata["c"]) == (items, clean, 7)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "m.gguf"
    path.write_bytes(content)
    return path


def resident_file_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssFile")


def failure(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        GGUF.open(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    assert "no such file or directory" in failure(tmp_path / "missing.gguf")
    assert "is a directory" in failure(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in failure(tmp_path / "fifo")
    assert "not a regular file" in failure(Path("/dev/zero"))
    assert "empty (0 bytes)" in failure(write(tmp_path, b""))
    assert "b'PK\\x03\\x04'" in failure(write(tmp_path, b"PK\x03\x04 a zip file"))
    assert "truncated inside the magic number: 4 bytes" in failure(write(tmp_path, b"GG"))
    with pytest.raises(ModelFileError, match="cannot open"):
        GGUF.open("a\0b")


Change = Callable[[Maker], object]


def retype(index: int, **fields: object) -> Change:
    def change(maker: Maker) -> None:
        for name, item in fields.items():
            setattr(maker.tensors[index], name, item)

    return change


BROKEN: list[tuple[Change, str]] = [
    (lambda m: setattr(m, "version", 1), "version 1 is not supported (2 and 3 are)"),
    (lambda m: setattr(m, "version", 3 << 24), "big-endian"),
    (lambda m: setattr(m, "tensor_count", 2**63), "claims 9,223,372,036,854,775,808 tensors"),
    (lambda m: setattr(m, "tensor_count", 60_000), "tensor '' has 0 axes"),
    (lambda m: setattr(m, "key_count", 2**40), "claims 1,099,511,627,776 metadata keys"),
    (lambda m: m.metadata.update(x=struct.pack("<I", 13)), "key 'x' has unknown type 13"),
    (lambda m: m.metadata.update(x=struct.pack("<IIQ", ARRAY, ARRAY, 1)), "of unknown type 9"),
    (
        lambda m: m.metadata.update(x=struct.pack("<IIQ", ARRAY, 4, 2**62)),
        "truncated inside metadata",
    ),
    (lambda m: m.metadata.update(x=struct.pack("<IIQ", ARRAY, STRING, 2**40)), "at most 4,194,304"),
    (lambda m: m.metadata.update(x=struct.pack("<IIQ", ARRAY, STRING, 2**20)), "truncated inside"),
    (lambda m: m.metadata.update(x=struct.pack("<IQ", STRING, 2**63)), "'x': 9,223,372,036,854,"),
    (lambda m: m.metadata.update({"x" * 70_000: 1}), "name of 70,000 bytes, at most 65,535"),
    (lambda m: m.metadata.update({"general.alignment": 24}), "alignment is 24, not a power of two"),
    (lambda m: m.metadata.update({"general.alignment": 0}), "alignment is 0, not a power of two"),
    (lambda m: m.metadata.update({"general.alignment": "x"}), "must be an integer, not 'x'"),
    (
        retype(0, type=12),
        "has type Q4_K, which is not supported (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K",
    ),
    (retype(0, type=99), "has type number 99"),
    (retype(0, shape=(2, 33)), "shape (2, 33): rows must be a positive multiple of 32"),
    (retype(1, shape=(0,)), "shape (0,)"),
    (retype(1, shape=()), "has 0 axes, 1 to 4"),
    (retype(1, shape=(1, 1, 1, 1, 32)), "has 5 axes"),
    (
        retype(1, shape=(2**62, 2**62), data=b""),
        "the file is truncated: tensor 'output_norm.weight'",
    ),
    (retype(1, offset=0), "'token_embd.weight' and 'output_norm.weight' overlap"),
    (retype(1, offset=33), "offset 33, not a multiple of the alignment 32"),
    (retype(1, offset=2**63), "the file is truncated: tensor 'output_norm.weight'"),
    (retype(1, name="token_embd.weight"), "tensor 'token_embd.weight' occurs twice"),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=[words[:40] for _, words in BROKEN])
def test_broken_files_say_what_is_wrong(tmp_path: Path, change: Change, words: str) -> None:
    maker = tiny_llama()
    change(maker)
    assert words in failure(write(tmp_path, maker.build()))


def test_duplicate_key_and_invalid_text(tmp_path: Path) -> None:
    content = Maker({"aa": 1, "bb": 2}).build()
    assert "key 'aa' occurs twice" in failure(write(tmp_path, content.replace(b"bb", b"aa")))
    assert "not valid UTF-8 at byte 32" in failure(
        write(tmp_path, content.replace(b"aa", b"\xff\xff"))
    )
    raw = Maker({"s": "abcd", "l": ["abcd"], "b": struct.pack("<IB", BOOL, 2)}).build()
    reader = GGUF.open(write(tmp_path, raw.replace(b"abcd", b"\xff\xfe\xfd\xfc")))
    for key, words in (
        ("s", "not valid UTF-8"),
        ("l", "invalid UTF-8"),
        ("b", "a bool with the byte 2"),
    ):
        with pytest.raises(ModelFileError, match=words):
            reader.metadata[key]


def test_alignment_of_the_file_is_used(tmp_path: Path) -> None:
    tensors = [Tensor("a", (1,), data=b"abcd"), Tensor("b", (1,), data=b"efgh")]
    maker = Maker({"general.alignment": 256}, tensors, alignment=256)
    reader = GGUF.open(write(tmp_path, maker.build()))
    assert reader.tensors["a"].offset % 256 == 0 and reader.raw("b").tobytes() == b"efgh"


def use(path: Path) -> None:
    """Everything a load does with a file, but the tensors' values."""
    reader = GGUF.open(path)
    for key in reader.metadata:
        reader.metadata[key]
    LlamaConfig.from_gguf(reader)
    Tokenizer.from_gguf(reader).encode("hello world")
    for name in reader.tensors:
        assert reader.raw(name).size == reader.tensors[name].nbytes


def test_cut_anywhere_is_a_model_file_error(tmp_path: Path) -> None:
    content = tiny_llama().build()
    path = write(tmp_path, content)
    use(path)
    for length in range(len(content) - 1, -1, -31):
        os.truncate(path, length)
        with pytest.raises(ModelFileError):
            use(path)


@settings(max_examples=400)
@given(st.data())
def test_flipped_header_bytes_never_surprise(
    tmp_path_factory: pytest.TempPathFactory, data
) -> None:
    content = bytearray(tiny_llama().build())
    header = content.rindex(b"ffn_down.weight") + 60
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, header))] ^= data.draw(st.integers(1, 255))
    path = write(tmp_path_factory.getbasetemp(), bytes(content))
    try:
        use(path)
    except ModelFileError as error:
        assert str(path) in str(error)


def test_the_real_file_cut_and_flipped(model_path: Path, model: GGUF, tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "cut.gguf"
    shutil.copyfile(model_path, path)
    size = path.stat().st_size
    header = min(info.offset for info in model.tensors.values())
    cuts = {rng.randrange(size) for _ in range(30)} | {rng.randrange(header) for _ in range(60)}
    for length in sorted(
        cuts | set(range(0, 300, 7)) | {header, header - 1, size - 1}, reverse=True
    ):
        os.truncate(path, length)
        assert failure(path)
    original = np.fromfile(model_path, np.uint8, header).tobytes()
    path.write_bytes(original)
    os.truncate(path, size)  # the tensors' data is a hole
    places = [*range(0, 1100, 23), *(rng.randrange(header) for _ in range(40))]
    places += [header - 1 - rng.randrange(18_000) for _ in range(40)]
    with open(path, "r+b", buffering=0) as file:
        for place in places:
            os.pwrite(file.fileno(), bytes([original[place] ^ rng.randrange(1, 256)]), place)
            try:
                reader = GGUF.open(path)
                assert len(list(reader.metadata)) and LlamaConfig.from_gguf(reader).layers == 30
            except ModelFileError as error:
                assert str(path) in str(error)
            os.pwrite(file.fileno(), original[place : place + 1], place)
