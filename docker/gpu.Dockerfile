# The same with PyTorch for GPUs, for the learner and for policies that are language models.
#   docker build -f docker/gpu.Dockerfile -t cairn:gpu .
# Weights of models, keys and runs are not in it: runs are at /runs, which is the only place that lasts.
FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1 AS packages
COPY docker/build.lock docker/gpu.lock /tmp/
# Nothing is installed without a hash, not even what builds the few packages that come as source.
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r /tmp/build.lock \
 && /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r /tmp/gpu.lock

FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
# wget: KubeRay asks Ray's processes with it whether they are well. Debian keeps no old versions to pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends wget \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 cairn \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp cairn \
 && install -d -o 10001 -g 10001 /runs /tmp/ray
COPY --from=packages /opt/venv /opt/venv
WORKDIR /opt/cairn
COPY launch.py requirements.txt LICENSE ./
COPY envs envs
COPY llm_service llm_service
COPY learner learner
COPY actors actors
COPY cluster cluster
COPY configs configs
COPY docker docker
# All that is written besides runs goes to /tmp: the rest of the disk may be read-only.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    NUMBA_CACHE_DIR=/tmp/numba \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    OMP_NUM_THREADS=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=10s --start-period=120s --retries=2 CMD ["/opt/cairn/docker/alive.sh"]
CMD ["python", "launch.py"]
