"""A model of Hugging Face's format that is small enough to be written on the spot: random weights,
one token a byte. vLLM and SGLang serve it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HIDDEN, LAYERS, HEADS, INNER = 64, 2, 2, 128
SPECIAL = ("<unk>", "<s>", "</s>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "assistant:"
)


def write_transformer(folder: Path) -> None:
    """Write its weights, its configuration and its tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {text: id_ for id_, text in enumerate([*SPECIAL, *_bytes_as_letters()])}
    _write(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HIDDEN // HEADS,
        hidden_act="silu",
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        torch_dtype="float32",
    )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    _write(
        folder / "tokenizer.json",
        version="1.0",
        added_tokens=[
            {"id": id_, "content": text, "special": True, **flags}
            for id_, text in enumerate(SPECIAL)
        ],
        pre_tokenizer={**byte_level, "use_regex": True},
        decoder={**byte_level, "use_regex": True},
        model={"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": SPECIAL[0]},
    )
    _write(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        unk_token=SPECIAL[0],
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        model_max_length=4096,
        chat_template=CHAT_TEMPLATE,
    )
    _write_weights(folder / "model.safetensors", _weights(len(vocabulary)))


def _write(file: Path, **values: object) -> None:
    file.write_text(json.dumps(values), encoding="utf-8")


def _bytes_as_letters() -> list[str]:
    """The letters by which byte-level tokenizers write the 256 bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in shown] + [
        chr(0x100 + number) for number in range(256 - len(shown))
    ]


def _weights(tokens: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    random = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return random.normal(0.0, 0.02, shape).astype(np.float32)

    ones = np.ones(HIDDEN, np.float32)
    found = {
        "model.embed_tokens.weight": matrix(tokens, HIDDEN),
        "model.norm.weight": ones,
        "lm_head.weight": matrix(tokens, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.{name}.weight": ones for name in ("input_layernorm", "post_attention_layernorm")
        }
        found |= {f"{at}.self_attn.{name}_proj.weight": matrix(HIDDEN, HIDDEN) for name in "qkvo"}
        found |= {f"{at}.mlp.{name}_proj.weight": matrix(INNER, HIDDEN) for name in ("gate", "up")}
        found[f"{at}.mlp.down_proj.weight"] = matrix(HIDDEN, INNER)
    return found


def _write_weights(
    file: Path, weights: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
) -> None:
    """In the format safetensors: the length of a header, the header as JSON, and all numbers."""
    header, end = {}, 0
    for name, values in weights.items():
        begin, end = end, end + values.nbytes
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(header).encode()
    numbers = b"".join(values.tobytes() for values in weights.values())
    file.write_bytes(len(head).to_bytes(8, "little") + head + numbers)
