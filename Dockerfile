ARG PYTHON=3.13-slim-trixie

FROM python:${PYTHON} AS build
# The compiler makes the hot path faster: docs/decisions/0069. It stays in this stage.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY requirements-build.lock requirements-runtime.lock ./
# Every file is checked against its hash in the locks. The image gets what runs, without pip.
RUN python -m venv /opt/build && python -m venv --without-pip /opt/coxswain \
    && /opt/build/bin/pip install --no-cache-dir --no-deps --require-hashes \
    --requirement requirements-build.lock \
    && /opt/build/bin/pip --python /opt/coxswain install --no-cache-dir --no-deps --require-hashes \
    --requirement requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY extproc/ extproc/
COPY scraper/ scraper/
COPY tools/ tools/
RUN HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 \
    /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/coxswain install --no-index --no-deps /wheels/*.whl \
    && /opt/build/bin/pip --python /opt/coxswain check

FROM python:${PYTHON}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin coxswain \
    && install --directory --owner 10001 --mode 700 /var/lib/coxswain-batches
# Memory that a long queue took is given back: docs/decisions/0174.
RUN apt-get update && apt-get install --yes --no-install-recommends libjemalloc2 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build /opt/coxswain /opt/coxswain
ENV PATH=/opt/coxswain/bin:$PATH LD_PRELOAD=libjemalloc.so.2 PYTHONMALLOC=malloc \
    MALLOC_CONF=narenas:1,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0
USER 10001
EXPOSE 9002 9003 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9090/healthz', timeout=2)"]
ENTRYPOINT ["coxswain"]
CMD ["serve"]
