"""Makes tests/data/tokenizer_llama_cpp.json.gz: strings and the ids llama.cpp gives them.

    python tests/oracle/make_tokenizer.py MODEL.gguf OUTPUT.json.gz      (needs llama-cpp-python)

The strings are made from a fixed seed, so that the same model and llama.cpp give the same file.
Each case is [text, ids, ids with control tokens recognised (null if the same)]; BOS is never added.
"others" holds the ids of every sixth text when the same vocabulary is used with another
pre-tokeniser.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

import llama_cpp  # pyright: ignore[reportMissingImports]

WORDS = (
    "the of and to in is that it for was on are as with they be at one have this from by hot word "
    "but what some we can out other were all there when up use your how said an each she which do "
    "their time if will way about many then them write would like so these her long make thing "
    "see him two has look more day could go come did number sound no most people my over know "
    "water than call first who may down side been now find terrazzo marble quarterly unbelievably "
    "antidisestablishmentarianism internationalisation floating-point tokeniser naïve café façade "
    "Übergröße coöperate señor São Zürich Ångström résumé Dvořák Łódź smörgåsbord"
)
FIXED = (
    "", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x00", "\x04", "\x7f", "a", "Ġ",
    "Ċ", "Ń", " Ġthe", "�", "\ufeff", "I'm you're he'll we've they'd it's don't",
    "I'M YOU'RE HE'LL WE'VE IT'S DON'T", "'s't're've'm'll'd", "rock'n'roll 'tis 's",
    "’s it’s don’t", "3.14159 1,000,000 1e-9 0xFF 1/2 50%", "12345678901234567890",
    "½ ² Ⅷ ① ٣٤٥ १२३ 〇 五 𝟘𝟙", "a1b2c3 x86_64 utf-8 h264", "...!!!???---===___",
    "¿Qué? ¡Sí! «Oui» „Ja“", "🙂", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪🇯🇵🇺🇸", "❤️‍🔥", "🏳️‍🌈",
    "e\u0301 é", "\u200b\u200d\u2060", "नमस्ते दुनिया", "สวัสดีชาวโลก", "こんにちは世界",
    "你好,世界。", "안녕하세요 세계", "Здравствуй, мир", "Γειά σου Κόσμε", "مرحبا بالعالم",
    "שלום עולם", "∑∫√∞≈≠≤≥ ∀x∈ℝ: x²≥0", "̀̀̀", "ﷺ", "🜁🜂🜃", "\U000f0000\U0010ffff",
    "𓀀𓀁", "Ａｂｃ１２３", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|", "<|im_end|>>", "<<|im_end|>", "<|endoftext|><|endoftext|>",
    "a<repo_name>b<file_sep>c", "<reponame> <gh_stars>10", "< |im_end|>",
)  # fmt: skip
CODE = (
    "def f(x: int) -> int:\n    return x * 2\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "if __name__ == '__main__':\n        main()\n",
    "SELECT * FROM t WHERE id=42;\n", "</div>\n<p class=\"x\">",
    "#include <stdio.h>\r\n", "let v: Vec<u8> = vec![0; 16];",
    "x = {'a': [1, 2, 3], \"b\": None}\n\n\n",
    "git commit -m \"fix #123\" && git push\n",
    "https://example.org/a/b?c=d&e=%20f#g", "C:\\Users\\me\\x.txt",
    "\\frac{a}{b} + \\sum_{i=0}^{n} x_i", "0b1010 | ~0x7f << 3",
    "lambda *a, **k: (yield)", "```python\n",
)  # fmt: skip
SPACES = (
    " ", "  ", "   ", "\n", "\t", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2003", "\u2028", "\x85",
    "\v\f",
)  # fmt: skip
RANGES = (
    (0x4E00, 0x9FA5), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0x0400, 0x045F), (0x0370, 0x03CE),
    (0x0620, 0x064A), (0x05D0, 0x05EA), (0x0905, 0x0939), (0x0E01, 0x0E3A), (0x1F300, 0x1F64F),
    (0x2190, 0x22FF), (0x00A1, 0x024F), (0x0300, 0x036F), (0x2000, 0x206F), (0x20000, 0x2A6DF),
    (0x0001, 0x007F), (0xE000, 0xF8FF),
)  # fmt: skip


def strings(vocabulary: list[bytes], controls: list[str]) -> list[str]:
    """At least 2,400 distinct strings, each kind a few hundred times."""
    rng = random.Random(20250207)
    words = WORDS.split()

    def number() -> str:
        return str(rng.randrange(10 ** rng.randrange(1, 16)))

    def script(bounds: tuple[int, int]) -> str:
        return "".join(chr(rng.randint(*bounds)) for _ in range(rng.randrange(1, 13)))

    def prose() -> str:
        picked = [rng.choice(words) for _ in range(rng.randrange(1, 25))]
        cased = [rng.choice((str, str.capitalize, str.upper, str))(word) for word in picked]
        return " ".join(cased) + rng.choice((".", "", "!", "?\n", "; "))

    def mixed() -> str:
        kinds = (prose, number, lambda: rng.choice(SPACES), lambda: rng.choice(CODE),
                 lambda: script(rng.choice(RANGES)), lambda: rng.choice(FIXED))  # fmt: skip
        return "".join(rng.choice(kinds)() for _ in range(rng.randrange(2, 7)))

    def tokens() -> str:
        picked = [rng.choice(vocabulary) for _ in range(rng.randrange(1, 13))]
        return b"".join(picked).decode("utf-8", "ignore")

    def spaces() -> str:
        runs = [rng.choice(SPACES) * rng.randrange(1, 9) for _ in range(rng.randrange(1, 5))]
        return "".join(
            run + rng.choice(("", "x", "1", "é", ".", rng.choice(words))) for run in runs
        )

    def numbers() -> str:
        return rng.choice(("", " ", "$", "-")).join(number() for _ in range(rng.randrange(1, 6)))

    def control() -> str:
        parts = [rng.choice((prose, spaces, number))() for _ in range(rng.randrange(1, 4))]
        return rng.choice(controls).join(["", *parts] if rng.random() < 0.5 else [*parts, ""])

    def long_word() -> str:
        letters = rng.choice(("abcdefghijklmnopqrstuvwxyz", "ACGT", "aé日🙂", "_-", "=", "xX"))
        return "".join(rng.choice(letters) for _ in range(rng.randrange(20, 300)))

    makers = {
        prose: 350, mixed: 500, tokens: 450, spaces: 250, numbers: 150, control: 250,
        long_word: 100,
    }  # fmt: skip
    made = list(FIXED + CODE)
    made += [script(r) for r in RANGES for _ in range(25)]
    made += [maker() for maker, count in makers.items() for _ in range(count)]
    return list(dict.fromkeys(made))


def with_pre_tokenizer(content: bytes, name: str) -> bytes:
    """The model file with another pre-tokeniser's name; the licence's text makes up for its length,
    so that nothing moves."""
    for key, value, new in (
        (b"tokenizer.ggml.pre", b"smollm", name.encode()),
        (b"general.license", b"apache-2.0", b"x" * (16 - len(name))),
    ):
        head = key + struct.pack("<I", 8)
        old = head + struct.pack("<Q", len(value)) + value
        assert content.count(old) == 1, key
        content = content.replace(old, head + struct.pack("<Q", len(new)) + new)
    return content


def other_ids(model: Path, name: str, texts: list[str]) -> list[list[int]]:
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(with_pre_tokenizer(model.read_bytes(), name))
        file.flush()
        llama = llama_cpp.Llama(file.name, vocab_only=True, verbose=False)
        assert llama.metadata["tokenizer.ggml.pre"] == name
        return [llama.tokenize(text.encode(), add_bos=False) for text in texts]


def main(model: Path, output: Path) -> None:
    llama = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    metadata = llama.metadata
    vocabulary = [llama.detokenize([i]) for i in range(17, llama.n_vocab())]
    controls = [llama.detokenize([i], special=True).decode() for i in range(17)]
    cases = []
    for text in strings(vocabulary, controls):
        plain, special = (
            llama.tokenize(text.encode(), add_bos=False, special=flag) for flag in (False, True)
        )
        cases.append([text, plain, None if special == plain else special])
    data = {
        "made_by": f"llama-cpp-python {llama_cpp.__version__}",
        "pre_tokenizer": metadata["tokenizer.ggml.pre"],
        "model_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "cases": cases,
        "others": {
            name: other_ids(model, name, [case[0] for case in cases[::6]])
            for name in ("gpt-2", "llama-bpe", "qwen2")
        },
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    with open(output, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(text.encode())
    print(f"{len(cases):,} strings, {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
