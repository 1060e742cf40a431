"""Whatever is wrong with what the user gives: one line that names it, exit code 2, no traceback."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_result import Result

HEAD = 4 << 20  # holds the demo model's whole header

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def head(model_path: Path) -> bytes:
    with open(model_path, "rb") as file:
        return file.read(HEAD)


@pytest.fixture
def broken(model_path: Path, tmp_path: Path) -> Callable[[bytes], Path]:
    """A model file with this beginning and the demo model's size (sparse behind it)."""

    def write(beginning: bytes) -> Path:
        path = tmp_path / "broken.gguf"
        with open(path, "wb") as file:
            file.write(beginning)
            file.truncate(model_path.stat().st_size)
        return path

    return write


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["generate"], "Missing argument 'MODEL'"),
        (["generate", "smollm2"], "no prompt; give one after the model, or -"),
        (["generate", "nothing", "hi"], "'nothing' is neither a file nor the name of a model"),
        (["generate", "no/such.gguf", "hi"], "no/such.gguf: cannot open the model file"),
        (["generate", "smollm2", "hi"], "run `terrazzo pull smollm2`"),
        (["generate", "x", "hi", "--temperature", "hot"], "--temperature"),
        (
            ["generate", "x", "hi", "--temperature", "-1"],
            "temperature is -1.0; choose a value from 0",
        ),
        (["generate", "x", "hi", "--top-p", "1.5"], "top_p is 1.5"),
        (["generate", "x", "hi", "--repeat-penalty", "0"], "repeat_penalty is 0"),
        (["generate", "x", "hi", "--seed", "-1"], "seed is -1"),
        (["generate", "x", "hi", "--max-tokens", "0"], "--max-tokens"),
        (["generate", "x", "hi", "--threads", "0"], "threads is 0; choose at least 1"),
        (
            ["generate", "x", "hi", "--activations", "int4"],
            "activations is 'int4'; choose \"int8\"",
        ),
        (["generate", "x", "hi", "--colour"], "No such option: --colour"),
        (["chat", "nothing"], "'nothing' is neither a file nor"),
        (["pull", "nothing"], "no model called 'nothing' is known (smollm2 is)"),
        (["sing"], "No such command 'sing'"),
        (["kernel"], "Missing command"),
        (["kernel", "show", "nothing"], "there is no kernel 'nothing'; choose from add,"),
        (["kernel", "run", "add", "--shape", "m=4"], "`add` has no dim 'm'; it has: n"),
        (["kernel", "run", "add", "--shape", "n"], "--shape has 'n'; spell it name=value"),
        (
            ["kernel", "run", "add", "--shape", "n=x"],
            "--shape has n=x; the value is a whole number",
        ),
        (["kernel", "run", "add", "--shape", "n=0"], "dim n is 0"),
        (
            ["kernel", "run", "add", "--dtype", "T=f64"],
            "type T is 'f64'; choose from f32, f16, bf16",
        ),
        (["kernel", "run", "add", "--dtype", "Q=f32"], "`add` has no type 'Q'; it has: T"),
        (
            ["kernel", "run", "linear", "--with", "x"],
            "`linear` has no optional tensor 'x'; it has:",
        ),
        (["kernel", "run", "linear", "--dtype", "A=a8", "--shape", "k=33"], "groups of 32"),
        (["kernel", "run", "add", "--const", "N=1"], "has no parameter `N`"),
        (
            ["kernel", "explain", "add", "--stage", "x"],
            "there is no stage 'x'; choose from source,",
        ),
        (["cache", "burn"], "No such command 'burn'"),
    ],
)
def test_bad_arguments(run: Run, args: list[str], said: str) -> None:
    assert said in run(*args).error_line()


def test_a_folder_is_no_model(run: Run, tmp_path: Path) -> None:
    assert "is a directory" in run("generate", tmp_path, "hi").error_line()


@pytest.mark.parametrize("cut", [0, 3, 4, 11, 23, 24, 1_000, 100_000, 1_000_000, 50_000_000])
def test_truncated_file(run: Run, model_path: Path, head: bytes, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gguf"
    with open(path, "wb") as file:
        file.write(head[:cut])
        file.truncate(cut)
    assert str(path) in run("generate", path, "hi").error_line()


def test_wrong_magic(run: Run, head: bytes, broken: Callable[[bytes], Path]) -> None:
    path = broken(b"GGML" + head[4:])
    said = run("generate", path, "hi").error_line()
    assert str(path) in said and "GGUF" in said


def test_unknown_version(run: Run, head: bytes, broken: Callable[[bytes], Path]) -> None:
    said = run("generate", broken(head[:4] + struct.pack("<I", 99) + head[8:]), "hi").error_line()
    assert "99" in said and "version" in said


def test_unknown_architecture(run: Run, head: bytes, broken: Callable[[bytes], Path]) -> None:
    at = head.index(b"general.architecture") + len("general.architecture") + 4
    assert head[at : at + 13] == struct.pack("<Q", 5) + b"llama"
    said = run("generate", broken(head[: at + 8] + b"mamba" + head[at + 13 :]), "hi").error_line()
    assert "'mamba' is not supported (llama is)" in said


@pytest.mark.parametrize(("type_id", "name"), [(12, "Q4_K"), (20, "IQ4_NL"), (77, "77")])
def test_unknown_quantisation(
    run: Run, head: bytes, broken: Callable[[bytes], Path], type_id: int, name: str
) -> None:
    tensor = b"blk.0.ffn_up.weight"
    at = head.index(tensor) + len(tensor)
    (dims,) = struct.unpack_from("<I", head, at)
    at += 4 + 8 * dims
    path = broken(head[:at] + struct.pack("<I", type_id) + head[at + 4 :])
    said = run("generate", path, "hi").error_line()
    assert name in said and "blk.0.ffn_up.weight" in said
    assert all(known in said for known in ("Q8_0", "Q4_0", "Q4_1", "Q6_K"))


def test_prompt_longer_than_context(run: Run, model_path: Path) -> None:
    said = run("generate", model_path, "one two three four five six", "--context", 4).error_line()
    assert "the prompt has 6 tokens, the context holds 4" in said


def test_context_longer_than_the_model_s(run: Run, model_path: Path) -> None:
    said = run("generate", model_path, "hi", "--context", 8193).error_line()
    assert "8,193" in said and "8,192" in said


def test_no_traceback_from_a_process(process: Run, tmp_path: Path) -> None:
    """Once through the real entry point, where nothing of the tests' own is in the way."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    assert str(path) in process("generate", path, "hi").error_line()


def test_stdin_is_not_text(process: Run, model_path: Path) -> None:
    said = process("generate", model_path, "-", input=b"ab\xff").error_line()
    assert said.startswith("standard input is not UTF-8 at byte 2")


def test_tiles_that_do_not_fit(run: Run) -> None:
    """A kernel's error shows the source line and a table besides; no traceback, code 2."""
    shape = "heads=1,kvheads=1,s=8192,t=8192,d=16"
    r = run("kernel", "run", "flash_attention", "--const", "BQ=8192,STEP=8192", "--shape", shape)
    first, *rest = r.err.splitlines()
    assert r.code == 2 and r.out == "" and first.startswith("error: ")
    assert re.search(r"needs 51[56]\.\d MiB of scratch a thread", first)  # more with matrix tiles
    assert "lower BQ from 8,192 to 512" in first
    assert rest[0].strip().startswith("x = qt @") and "x [i=8192, j=8192]" in r.err
