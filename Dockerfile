# The image of the controller, of `slotkeeper migrate`, and of workers that run commands. A worker with Python handlers
# is an image of yours with slotkeeper installed (docs/worker.md).
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Without pip: the one of this stage installs into it, and none is left at run time.
RUN python -m venv --without-pip /opt/slotkeeper
WORKDIR /src
# Dependencies before source, so that a change of the source keeps their layer.
COPY requirements/run.txt requirements/dev.txt requirements/
RUN pip --python /opt/slotkeeper/bin/python install --require-hashes --no-deps --only-binary :all: \
    --requirement requirements/run.txt
# What builds the wheel, by the versions and hashes of the developers' lock: pip reads no hashes from a constraint.
RUN awk '/^[a-z]/ { wanted = /^(hatchling|packaging|pathspec|pluggy|trove-classifiers)==/ } wanted' requirements/dev.txt \
    > requirements/build.txt \
 && pip install --require-hashes --no-deps --only-binary :all: --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY sql sql
COPY crds crds
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/slotkeeper/bin/python install --no-deps --no-index dist/*.whl \
 && /opt/slotkeeper/bin/slotkeeper --version

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="slotkeeper" \
      org.opencontainers.image.description="Scheduled and background jobs for Kubernetes, with Postgres as the one source of truth" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes pip \
 && rm -rf /usr/local/lib/python3.*/ensurepip \
 && groupadd --gid 65532 slotkeeper \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin slotkeeper
COPY --from=build /opt/slotkeeper /opt/slotkeeper
# Time zones come from the locked package tzdata, for slotkeeper and for handlers: never from the image's system.
# USER and HOME: kopf asks for the user's name, which an unknown uid (OpenShift) does not have.
ENV PATH=/opt/slotkeeper/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONTZPATH="" \
    USER=slotkeeper \
    HOME=/tmp
WORKDIR /app
USER 65532:65532
ENTRYPOINT ["slotkeeper"]
