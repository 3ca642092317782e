# One image for the four services: compose.yaml says which of them a container runs.
#
#   docker compose build                          the CPU build of torch
#   docker compose build --build-arg TORCH=cuda   the CUDA build (compose.cuda.yaml does it)

# Wheels that lie on disk. None by default; a compose file's additional_contexts may give a folder.
FROM scratch AS wheels

FROM python:3.11-slim AS build
ARG TORCH=cpu
ARG TORCH_VERSION=2.13.0
ARG UV_VERSION=0.13.9
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 VIRTUAL_ENV=/opt/ninfer
# pip stays in the environment: `ninfer-model fetch` downloads with it
RUN python -m venv /opt/ninfer && python -m venv /opt/uv \
    && /opt/uv/bin/pip install --quiet --no-cache-dir "uv==$UV_VERSION"
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# uv knows where PyTorch keeps its CPU builds; the plain package is a CUDA build of several GB
RUN --mount=type=bind,from=wheels,target=/wheels \
    if [ "$TORCH" = cpu ] && [ -z "$(find /wheels -name 'torch-*')" ]; then \
        export UV_TORCH_BACKEND=cpu; \
    fi; \
    /opt/uv/bin/uv pip install --quiet --find-links /wheels --constraint requirements.lock \
        --requirement pyproject.toml --extra otel "torch==$TORCH_VERSION" \
    && /opt/ninfer/bin/python -c "import torch; found = 'cuda' if torch.version.cuda else 'cpu'; \
assert found == '$TORCH', f'TORCH=$TORCH was asked, the {found} build was found'"
COPY README.md LICENSE ./
COPY shared shared
COPY kernels kernels
COPY bench bench
COPY services services
RUN /opt/uv/bin/uv pip install --quiet --no-deps .

FROM python:3.11-slim
# 10001 owns the sockets' volume and the models' in compose.yaml
RUN useradd --uid 10001 --create-home --home-dir /home/ninfer --shell /usr/sbin/nologin ninfer \
    && install -d -o ninfer -g ninfer -m 0755 /models /logs \
    && install -d -o ninfer -g ninfer -m 0700 /run/ninfer
COPY --from=build /opt/ninfer /opt/ninfer
# Waiting threads of the model must not spin. The root is read-only, so Python compiles nothing later;
# numba keeps the engine's kernels below HOME, in memory, and compiles them for the machine it is on.
ENV PATH=/opt/ninfer/bin:$PATH HOME=/tmp TMPDIR=/tmp \
    OMP_WAIT_POLICY=PASSIVE KMP_BLOCKTIME=0 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
USER ninfer
WORKDIR /tmp
CMD ["ninfer-serve", "--help"]
