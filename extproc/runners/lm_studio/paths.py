"""The paths of LM Studio's own API. What loads, unloads or fetches models is not here: it stays
closed."""

from typing import Final

from extproc.runners.api import Api, kinds, rules

LM_STUDIOS_MODELS_PATH: Final = "/api/v1/models"

LM_STUDIO: Final = Api(
    name="lm-studio",
    slot_paths=kinds(generating=("/api/v1/chat",)),
    other_paths=rules(f"GET {LM_STUDIOS_MODELS_PATH}"),
)
