# syntax=docker/dockerfile:1
# NVIDIA Triton with our backend, on CPU: the tritonserver of the wheel nvidia-pytriton, which our tests run.
#   docker build -f docker/triton.Dockerfile -t embershard-triton:0.1.0 .
#   docker run --rm -p 127.0.0.1:8001:8001 -v "$PWD/model_repo:/repository:ro" embershard-triton:0.1.0
# docs/triton.md says what a repository needs. TORCH_INDEX: as in serving.Dockerfile.

FROM debian:12.12-slim AS build
ARG TORCH_INDEX=""
WORKDIR /embershard
COPY constraints.txt pyproject.toml ./
COPY proto proto
COPY scripts scripts
RUN --mount=type=cache,target=/root/.cache scripts/install.sh python
COPY . .
RUN --mount=type=cache,target=/root/.cache scripts/install.sh && \
    scripts/runtime.sh build triton /opt/embershard

FROM debian:12.12-slim
RUN --mount=type=bind,from=build,source=/embershard/scripts,target=/mnt/scripts \
    /mnt/scripts/runtime.sh packages triton && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin embershard
COPY --from=build /opt/embershard /opt/embershard
# Threads of the dense program spin briefly for each other, as in `embershard serve`.
ENV PATH=/opt/embershard/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    GOMP_SPINCOUNT=1000
USER 10001:10001
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=2s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
ENTRYPOINT ["tritonserver", "--backend-directory=/opt/embershard/backends"]
CMD ["--model-repository=/repository"]
