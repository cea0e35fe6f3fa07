from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from extproc.demo.model import ModelShape, write_adapter, write_model

SMALL = ModelShape(embedding=16, layers=1, heads=2, context_tokens=256)


def test_the_same_shape_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_model(tmp_path / name, SMALL)
    write_model(tmp_path / "other", ModelShape(embedding=16, layers=1, heads=2, seed=7))
    one, two, other = ((tmp_path / name).read_bytes() for name in ("one", "two", "other"))
    assert one == two != other


def test_the_file_reports_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", SMALL, name="boat")
    reader = GGUFReader(tmp_path / "m.gguf")
    told = {key: field.contents() for key, field in reader.fields.items()}
    assert told["general.name"] == "boat"
    assert told["llama.embedding_length"] == 16
    assert told["llama.block_count"] == 1
    assert told["llama.context_length"] == 256
    assert told["llama.vocab_size"] == len(told["tokenizer.ggml.tokens"])


def test_an_adapter_says_that_it_is_one(tmp_path: Path) -> None:
    write_adapter(tmp_path / "a.gguf", SMALL, rank=2)
    reader = GGUFReader(tmp_path / "a.gguf")
    assert reader.fields["general.type"].contents() == "adapter"
    assert {tensor.name for tensor in reader.tensors} == {
        f"blk.0.{projection}.weight.{half}"
        for projection in ("attn_q", "attn_v")
        for half in ("lora_a", "lora_b")
    }


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(OSError):
        write_model(tmp_path / "m.gguf", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"embedding": 20}, {"context_tokens": -1}])
def test_an_impossible_shape_is_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        ModelShape(**wrong)
