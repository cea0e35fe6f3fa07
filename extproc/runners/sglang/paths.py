"""The paths that only SGLang has. All that is not here, such as `/flush_cache`, stays closed."""

from typing import Final

from extproc.runners.api import Api, kinds

LOADS_PATH: Final = "/v1/loads"

SGLANG: Final = Api(
    name="sglang",
    slot_paths=kinds(generating=("/generate",), embedding=("/encode",)),
)
