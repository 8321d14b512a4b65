# The image of the controller, of `slotkeeper migrate`, and of workers that run commands. A worker with Python handlers
# is an image of yours: `FROM` this one and your code (examples/worker-image), or slotkeeper installed in your own.
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
# No byte code but that which is made on purpose: pip, too, imports from the environment that it installs into.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
# Without pip: the one of this stage installs into it, and none is left at run time.
RUN python -m venv --without-pip /opt/slotkeeper
WORKDIR /src
# Dependencies before source, so that a change of the source keeps their layer. Byte code is made once, below. The
# kubernetes package carries a second client, for asyncio, which nothing here imports: a third of the image.
COPY requirements/run.txt requirements/build.txt requirements/
RUN pip --python /opt/slotkeeper/bin/python install --require-hashes --no-deps --no-compile --only-binary :all: \
    --requirement requirements/run.txt \
 && pip install --require-hashes --no-deps --only-binary :all: --requirement requirements/build.txt \
 && rm -rf /opt/slotkeeper/lib/python3.*/site-packages/kubernetes/aio
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY sql sql
COPY crds crds
# The time of files in the wheel and in the layers, so that one commit gives one image; `make image` passes the commit's.
ARG SOURCE_DATE_EPOCH=1735689600
# Byte code that is not compared with its source: it starts faster, and does not change with the time of a file.
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/slotkeeper/bin/python install --no-deps --no-compile --no-index dist/*.whl \
 && /opt/slotkeeper/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/slotkeeper/lib \
 && find /opt/slotkeeper -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} + \
 && /opt/slotkeeper/bin/python -c 'import slotkeeper.cli.main, slotkeeper.operator'

FROM ${PYTHON_IMAGE}
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="slotkeeper" \
      org.opencontainers.image.description="Scheduled and background jobs for Kubernetes, with Postgres as the one source of truth" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# No pip at run time. The user by hand: useradd writes today's date into the image.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
 && rm -rf /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/*/__pycache__ \
 && echo 'slotkeeper:x:65532:' >> /etc/group \
 && echo 'slotkeeper:x:65532:65532:slotkeeper:/tmp:/usr/sbin/nologin' >> /etc/passwd
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
