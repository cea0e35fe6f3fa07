"""The files of the compose stack, parsed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def yaml_of(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def compose() -> dict[str, Any]:
    tree: dict[str, Any] = yaml_of(ROOT / "docker-compose.yaml")
    return tree


def dashboard() -> dict[str, Any]:
    text = (DEPLOY / "grafana/dashboards/coxswain.json").read_text(encoding="utf-8")
    tree: dict[str, Any] = json.loads(text)
    return tree


def queries() -> list[str]:
    """Every PromQL expression that the stack ships: of the dashboard and of the alerts."""
    targets = [target for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    groups = yaml_of(DEPLOY / "prometheus/alerts.yml")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return [one["expr"] for one in (*targets, *rules)]
