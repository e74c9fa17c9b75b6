# The product as an image: tickets-batch and its pinned requirements on a slim base, nothing else, and no root.
ARG PYTHON=3.13.9-slim-trixie

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/tickets-batch
WORKDIR /src
COPY requirements/server.txt requirements/server.txt
RUN /opt/tickets-batch/bin/python -m pip install --require-hashes --only-binary :all: -r requirements/server.txt
COPY pyproject.toml README.md ./
COPY tickets_batch tickets_batch
COPY jobs jobs
COPY workers workers
COPY scheduler scheduler
COPY gateway gateway
COPY migrations migrations
RUN /opt/tickets-batch/bin/python -m pip install --no-deps --no-build-isolation . \
    && /opt/tickets-batch/bin/python -m compileall -q /opt/tickets-batch/lib

FROM python:${PYTHON}
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tickets-batch
COPY --from=build /opt/tickets-batch /opt/tickets-batch
# The root file system may be read-only: whatever wants to write, writes under /tmp.
ENV PATH=/opt/tickets-batch/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib TICKETS_BATCH__HOME=/tmp/tickets-batch
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["tickets-batch"]
CMD ["-h"]
