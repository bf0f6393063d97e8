# syntax=docker/dockerfile:1
# Training, export and compilation, on CPU. From the root of the checkout:
#   docker build -f docker/training.Dockerfile -t embershard-training:0.1.0 .
#   docker run --rm -v "$PWD/runs:/runs" embershard-training:0.1.0 train /runs/ranker.toml
# TORCH_INDEX: as in serving.Dockerfile.

FROM debian:12.12-slim AS build
ARG TORCH_INDEX=""
WORKDIR /embershard
COPY constraints.txt pyproject.toml ./
COPY proto proto
COPY scripts scripts
RUN --mount=type=cache,target=/root/.cache scripts/install.sh python
COPY . .
RUN --mount=type=cache,target=/root/.cache scripts/install.sh && \
    scripts/runtime.sh build training /opt/embershard

FROM debian:12.12-slim
RUN --mount=type=bind,from=build,source=/embershard/scripts,target=/mnt/scripts \
    /mnt/scripts/runtime.sh packages training && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin embershard && \
    install --directory --owner=10001 --group=10001 /runs
COPY --from=build /opt/embershard /opt/embershard
# Data sets go to EMBERSHARD_CACHE: mount a volume at /runs to keep them.
ENV PATH=/opt/embershard/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    EMBERSHARD_CACHE=/runs/.cache
WORKDIR /runs
USER 10001:10001
# A run ends by itself and says by its exit status how.
HEALTHCHECK NONE
ENTRYPOINT ["embershard"]
CMD ["--help"]
