# syntax=docker/dockerfile:1
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /src
COPY requirements.lock ./
# Every file is checked against its hash in the lock. What only developers need stays in this stage.
RUN pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY extproc/ extproc/
COPY scraper/ scraper/
COPY tools/ tools/
# A compiler, which stays in this stage too, makes the hot path faster: docs/decisions/0069.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-index --find-links /wheels hatchling mypy setuptools \
    && HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 \
    /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m venv /opt/coxswain \
    && /opt/coxswain/bin/pip install --no-cache-dir --no-index --find-links /wheels coxswain

FROM python:${PYTHON}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin coxswain
COPY --from=build /opt/coxswain /opt/coxswain
ENV PATH=/opt/coxswain/bin:$PATH
USER 10001
EXPOSE 9002 9003 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9090/healthz', timeout=2)"]
ENTRYPOINT ["coxswain"]
CMD ["serve"]
