# The server and the emulator of its bucket in one image: docs/how-to/run-in-containers.md.

ARG PYTHON=python:3.11.13-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The compiler for the table that workers share; the image itself contains none.
# hadolint ignore=DL3008,DL3009
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
# Rarely changing layers first: the build tools, which stay in this stage, and memlite's dependencies.
COPY requirements/serve.txt requirements/image.txt requirements/
RUN python -m venv /tools \
    && /tools/bin/python -m pip install --require-hashes --requirement requirements/serve.txt
RUN python -m venv --without-pip /opt/memlite \
    && python -m pip --python /opt/memlite/bin/python install --no-compile --require-hashes \
        --only-binary :all: --requirement requirements/image.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY memlite memlite
COPY share share
RUN /tools/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && python -m pip --python /opt/memlite/bin/python install --no-compile --no-deps /wheel/*.whl \
    && python -m pip --python /opt/memlite/bin/python check \
    && /tools/bin/python hatch_build.py \
    && cp --parents memlite/memory/shared/_native.*.so memlite/proxy/_native.*.so memlite/server/connections/_native.*.so memlite/server/execution/_native.*.so memlite/server/execution/records/_native.*.so \
        /opt/memlite/lib/python3*/site-packages/
# The user cannot write to the image, so compile now. Not invalidated by timestamps, which differ between builds.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/memlite/lib

# The one-shot test of compose.yaml.
FROM ${PYTHON} AS smoke
COPY requirements/smoke.txt /smoke/requirements.txt
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action ignore \
    --require-hashes --requirement /smoke/requirements.txt
COPY scripts/containers/smoke.py /smoke/
USER 11211:11211
ENTRYPOINT ["python", "/smoke/smoke.py"]

FROM ${PYTHON} AS memlite
LABEL org.opencontainers.image.title="memlite" \
    org.opencontainers.image.description="A memcached-compatible cache with pluggable storage" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 11211 memlite \
    && useradd --uid 11211 --gid memlite --no-create-home --home-dir /data \
        --shell /usr/sbin/nologin memlite \
    && install --directory --owner memlite --group memlite --mode 0700 /data
COPY --from=build /opt/memlite /opt/memlite
COPY scripts/containers/health.py /opt/memlite/
# One worker per core that the container may use; on one core, a single process.
# Listening on loopback would allow connections only from the container itself.
ENV PATH=/opt/memlite/bin:$PATH PYTHONDONTWRITEBYTECODE=1 MEMLITE_LISTEN=0.0.0.0 MEMLITE_THREADS=auto
# Numeric, because Kubernetes cannot determine from a name that the user is not root.
USER 11211:11211
WORKDIR /data
VOLUME /data
EXPOSE 11211
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "/opt/memlite/health.py"]
ENTRYPOINT ["memlite"]
