"""Builds a Kubernetes API server, its etcd and Helm once, into the user's cache: `make kubernetes`.

None of them is in a package index, and all of them are Go modules: `go` fetches and checks them as
it does any module. The CRDs of what the chart can name come from their modules too. Tests that
need these programs are skipped where they are not built.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES: Final = "1.37.2"
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    / f"coxswain/kubernetes/{KUBERNETES}"
)
GO: Final = "1.26"
MISSING: Final = "the Kubernetes API server is not built: make kubernetes (ten minutes, takes Go)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of a Go module."""

    name: str
    module: str
    version: str
    package: str
    linked: str = ""
    """Flags for the linker: what its release says of itself."""


PROGRAMS: Final = (
    Program(
        name="etcd",
        module="go.etcd.io/etcd/server/v3",
        version="v3.7.3",
        package="go.etcd.io/etcd/server/v3",
    ),
    Program(
        name="helm",
        module="helm.sh/helm/v3",
        version="v3.22.0",
        package="helm.sh/helm/v3/cmd/helm",
    ),
    Program(
        name="kube-apiserver",
        module="k8s.io/kubernetes",
        version=f"v{KUBERNETES}",
        package="k8s.io/kubernetes/cmd/kube-apiserver",
        linked=f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}",
    ),
)
CRDS: Final = (
    ("github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    *(
        (
            "github.com/prometheus-operator/prometheus-operator@v0.85.0",
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml",
        )
        for kind in ("servicemonitors", "prometheusrules")
    ),
    *(
        (
            "sigs.k8s.io/gateway-api@v1.5.1",
            f"config/crd/standard/gateway.networking.k8s.io_{kind}.yaml",
        )
        for kind in ("gateways", "httproutes")
    ),
    *(
        (
            "github.com/envoyproxy/gateway@v1.9.1",
            f"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_{kind}.yaml",
        )
        for kind in ("envoyextensionpolicies", "backendtrafficpolicies", "clienttrafficpolicies")
    ),
)


def program(name: str) -> Path | None:
    """The built program of this name; None where it is not built."""
    found = CACHE / "bin" / name
    return found if found.exists() else None


def is_built() -> bool:
    """Whether all that tests need is there."""
    return all((CACHE / "bin" / one.name).exists() for one in PROGRAMS) and all(
        (CACHE / "crds" / Path(file).name).exists() for _, file in CRDS
    )


def _build(wanted: Program, work: Path) -> None:
    """Build it as the main package of a module that requires nothing else."""
    target = CACHE / "bin" / wanted.name
    if target.exists():
        return
    print(f"building {wanted.name} {wanted.version} ...", flush=True)
    lines = ["module coxswain.dev/programs", f"go {GO}.0"]
    lines += [f"require {wanted.module} {wanted.version}", *_replacements(wanted)]
    folder = work / wanted.name
    folder.mkdir()
    (folder / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    build = ["go", "build", "-mod=mod", "-trimpath", "-o", f"{folder}/built"]
    build += ["-ldflags", f"-s -w {wanted.linked}"]
    subprocess.run(["nice", "-n", "10", *build, wanted.package], cwd=folder, check=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / "built").replace(target)


def _replacements(wanted: Program) -> list[str]:
    """Kubernetes' own modules are published beside it: its v1.37.2 goes with their v0.37.2."""
    mod = Path(_downloaded(f"{wanted.module}@{wanted.version}")["GoMod"]).read_text("utf-8")
    version = wanted.version.replace("v1.", "v0.", 1)
    names = [line.split()[0] for line in mod.splitlines() if "=> ./staging/" in line]
    return [f"replace {name} => {name} {version}" for name in names]


def _downloaded(module: str) -> dict[str, str]:
    """Fetch a module; returns where it lies."""
    command = ["go", "mod", "download", "-json", module]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, str] = json.loads(run.stdout)
    return found


def _copy_crds() -> None:
    folder = CACHE / "crds"
    folder.mkdir(parents=True, exist_ok=True)
    for module, file in CRDS:
        if not (folder / Path(file).name).exists():
            source = Path(_downloaded(module)["Dir"]) / file
            shutil.copyfile(source, folder / f"{source.name}.new")
            (folder / f"{source.name}.new").replace(folder / source.name)


def main() -> int:
    """Build what is missing; 0 if all is there then, or Go is not installed."""
    if is_built():
        print(f"kubernetes: {CACHE}")
        return 0
    if shutil.which("go") is None:
        print("kubernetes: left out, as Go is not installed; the tests that need it are skipped")
        return 0
    began = time.monotonic()
    CACHE.mkdir(parents=True, exist_ok=True)
    work = CACHE / "building"
    with (CACHE / "lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(work, ignore_errors=True)  # left by a build that was killed
        work.mkdir()
        try:
            _copy_crds()
            for each in PROGRAMS:
                _build(each, work)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"kubernetes: {error}; what is built by now stays", file=sys.stderr)
            return 1
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(f"kubernetes: {CACHE} (after {time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
