"""Byte-pair encoding (Sennrich et al. 2016) of text, by Hugging Face's tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from algoformer.checks import whole

PAD, SEP, END = 0, 1, 2  # no text can spell them: they are outside the tokenizer, whose tokens follow
SPECIAL = 3
BYTES = 256


class BytePairs:
    """Text in Unicode's composed form as tokens that begin as bytes, so that every text has some, and back."""

    def __init__(self, definition: str) -> None:
        try:
            self.tokenizer: Any = _library().Tokenizer.from_str(definition)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"a tokenizer must be a tokenizer.json of Hugging Face's tokenizers; {error}") from error

    @classmethod
    def trained(cls, lines: Iterable[str], size: int) -> BytePairs:
        """The pairs of a text: at most `size` tokens with the three special ones, fewer where the text has no more."""
        whole("size", size, BYTES + SPECIAL)
        library = _library()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.normalizer = library.normalizers.NFC()
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size - SPECIAL,
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        return cls(tokenizer.to_str())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each line."""
        return [[i + SPECIAL for i in found.ids] for found in self.tokenizer.encode_batch(list(lines))]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The line of each row of tokens; special ones are left out, and so are bytes that are no text."""
        plain = [[i - SPECIAL for i in row if i >= SPECIAL] for row in rows]
        return [text.replace("\ufffd", "").strip() for text in self.tokenizer.decode_batch(plain)]

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return int(self.tokenizer.get_vocab_size()) + SPECIAL

    @property
    def definition(self) -> str:
        """The tokenizer as JSON, always spelt the same."""
        return json.dumps(json.loads(self.tokenizer.to_str()), ensure_ascii=False, sort_keys=True)


def _library() -> Any:
    try:
        import tokenizers
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: F401
    except ImportError as error:
        raise ImportError("text needs tokenizers: pip install 'algoformer[translation]'") from error
    return tokenizers
