"""A llama model small enough to be written on the spot: random weights, one token a byte.

It answers real `llama-server` requests with nonsense made of rowing words, at thousands of
tokens a second. Two rules shape the weights:
- Dimension 0 of the hidden state is the same positive number for every token and no layer
  writes to it, so the output matrix can use it as a bias: byte and letter tokens, which would
  give broken UTF-8, are pressed down by it, and only words and the end of text come out.
- The same shape and seed give the same bytes.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from extproc.demo.vocabulary import CHAT_TEMPLATE, WORDS

Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

END_OF_TEXT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """How large the model is. The default weighs 0.6 MB; embedding 1024 with 12 layers 500 MB.

    All heads share one of keys and values, or a server would clear hundreds of megabytes for them
    before it is ready. `context_tokens` is the longest context it claims to be trained for; it
    costs nothing here.
    Raises `ValueError` when the embedding cannot be split into the heads.
    """

    embedding: int = 64
    layers: int = 2
    heads: int = 4
    context_tokens: int = 32_768
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.embedding, self.layers, self.heads, self.context_tokens) < 1:
            raise ValueError("embedding, layers, heads and context_tokens must be at least 1")
        if self.embedding % (2 * self.heads):
            raise ValueError(
                f"embedding {self.embedding} is not a multiple of 2 x {self.heads} heads"
            )

    def rows_of(self, projection: str) -> int:
        """How many numbers an attention projection makes of one hidden state."""
        return self.embedding if projection == "attn_q" else self.embedding // self.heads


def write_model(path: Path, shape: ModelShape | None = None, *, name: str = "coxswain") -> None:
    """Write a complete model to `path`, whole or not at all; blocks while it writes.

    Raises `OSError` where the file cannot be written.
    """
    shape = shape or ModelShape()
    tokens, kinds = _vocabulary()
    with _written(path) as writer:
        writer.add_name(name)
        writer.add_context_length(shape.context_tokens)
        writer.add_embedding_length(shape.embedding)
        writer.add_block_count(shape.layers)
        writer.add_feed_forward_length(2 * shape.embedding)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(shape.embedding // shape.heads)
        writer.add_vocab_size(len(tokens))
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(END_OF_TEXT)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(CHAT_TEMPLATE)
        for tensor, matrix in _weights(shape, kinds):
            writer.add_tensor(tensor, matrix)


def write_adapter(
    path: Path, shape: ModelShape | None = None, *, rank: int = 4, seed: int = 1
) -> None:
    """Write a LoRA adapter for the model of the same shape, whole or not at all; blocks.

    It changes the query and value projections of every layer.
    """
    shape = shape or ModelShape()
    draw = _drawer(seed)
    with _written(path) as writer:
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", float(rank))
        for layer in range(shape.layers):
            for projection in ("attn_q", "attn_v"):
                base = f"blk.{layer}.{projection}.weight"
                writer.add_tensor(f"{base}.lora_a", draw(rank, shape.embedding))
                writer.add_tensor(f"{base}.lora_b", draw(shape.rows_of(projection), rank))


def _vocabulary() -> tuple[list[str], list[int]]:
    """Control tokens, the 256 bytes, the printable ASCII letters, and words for the answers."""
    tokens = ["<unk>", "<s>", "</s>"]
    kinds = [int(TokenType.UNKNOWN), int(TokenType.CONTROL), int(TokenType.CONTROL)]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    kinds += [int(TokenType.BYTE)] * 256
    # llama.cpp writes a space as U+2581 inside of tokens.
    plain = ["\u2581", *map(chr, range(0x21, 0x7F)), *("\u2581" + word for word in WORDS)]
    return tokens + plain, kinds + [int(TokenType.NORMAL)] * len(plain)


def _weights(shape: ModelShape, kinds: list[int]) -> Iterator[tuple[str, Matrix]]:
    width = shape.embedding
    draw = _drawer(shape.seed)
    embeddings = draw(len(kinds), width) * np.float32(width**0.5)
    embeddings[:, 0] = 4.0
    yield "token_embd.weight", embeddings
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_norm.weight", np.ones(width, dtype=np.float32)
        for projection in ("attn_q", "attn_k", "attn_v"):
            yield f"{prefix}{projection}.weight", draw(shape.rows_of(projection), width)
        yield prefix + "attn_output.weight", _sparing_bias(draw(width, width))
        yield prefix + "ffn_norm.weight", np.ones(width, dtype=np.float32)
        yield prefix + "ffn_gate.weight", draw(2 * width, width)
        yield prefix + "ffn_up.weight", draw(2 * width, width)
        yield prefix + "ffn_down.weight", _sparing_bias(draw(width, 2 * width))
    yield "output_norm.weight", np.ones(width, dtype=np.float32)
    output = draw(len(kinds), width) * np.float32(2.0)
    is_word = np.zeros(len(kinds), dtype=bool)
    is_word[-len(WORDS) :] = True
    is_word[END_OF_TEXT] = True
    output[:, 0] = np.where(is_word, 10.0, -10.0)
    yield "output.weight", output


def _sparing_bias(matrix: Matrix) -> Matrix:
    """Let a projection back into the hidden state leave its dimension 0 alone."""
    matrix[0, :] = 0.0
    return matrix


def _drawer(seed: int) -> Callable[[int, int], Matrix]:
    """Draw matrices whose product with a normalised vector keeps its size."""
    source = np.random.default_rng(seed)

    def draw(rows: int, columns: int) -> Matrix:
        matrix = source.standard_normal((rows, columns), dtype=np.float32)
        return matrix / np.float32(columns**0.5)

    return draw


@contextmanager
def _written(path: Path) -> Iterator[GGUFWriter]:
    """Collect into a GGUF file beside `path`, then move it there in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        writer = GGUFWriter(name, "llama")
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
