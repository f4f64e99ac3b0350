# The LLM service alone, with PyTorch for GPUs: hosted models, or a local folder mounted at /models.
#   docker build -f docker/llm.Dockerfile -t cairn:llm .
# Weights of models and keys are not in it; its journal is at /runs/llm, which must last.
FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1 AS packages
COPY docker/llm.lock /tmp/
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r /tmp/llm.lock

FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
RUN groupadd --gid 10001 cairn \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp cairn \
 && install -d -o 10001 -g 10001 /runs
COPY --from=packages /opt/venv /opt/venv
WORKDIR /opt/cairn
COPY LICENSE ./
COPY llm_service llm_service
COPY docker/healthy.sh docker/
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=30s --start-period=300s --retries=2 CMD ["/opt/cairn/docker/healthy.sh", "/runs/llm"]
ENTRYPOINT ["python", "-m", "llm_service.server"]
CMD ["name=scripted", "--folder", "/runs/llm"]
