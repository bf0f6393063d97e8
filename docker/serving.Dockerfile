# syntax=docker/dockerfile:1
# The server. From the root of the checkout: docker build -f docker/serving.Dockerfile -t embershard-serving:0.1.0 .
# docs/deployment.md says how to run it.
#
# TORCH_INDEX: where pip finds torch, such as PyTorch's CPU-only index. Without it pip decides, which
# may bring a build for CUDA that is some GB larger.
# CUDA: 1 for an image that serves on GPUs too: --build-arg CUDA=1 -t embershard-serving:0.1.0-cuda

FROM debian:12.12-slim AS build
ARG TORCH_INDEX=""
ARG CUDA=0
WORKDIR /embershard
# First what changes seldom, so that a change of the sources does not bring torch again.
COPY constraints.txt pyproject.toml ./
COPY proto proto
COPY scripts scripts
RUN --mount=type=cache,target=/root/.cache scripts/install.sh python
COPY . .
RUN --mount=type=cache,target=/root/.cache scripts/install.sh && \
    scripts/runtime.sh build serving /opt/embershard

FROM debian:12.12-slim
RUN --mount=type=bind,from=build,source=/embershard/scripts,target=/mnt/scripts \
    /mnt/scripts/runtime.sh packages serving && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin embershard
COPY --from=build /opt/embershard /opt/embershard
ENV PATH=/opt/embershard/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50051 9400
# By the metrics port, which asks for no token and speaks no TLS.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=2s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9400/healthz', timeout=4)"]
ENTRYPOINT ["embershard"]
CMD ["serve", "/repository", "--host", "0.0.0.0", "--metrics-host", "0.0.0.0", "--metrics-port", "9400", "--log-json"]
