# The service in a container; needs nothing but the checkout. The file system may be read-only, as the
# server only writes copies of the model to /tmp. Built by buildah and run by runc, with a read-only file
# system and without capabilities, on Debian 12 (BASE with python3 and python3-venv); not on the default base.
#   docker build -t coldhash .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -e COLDHASH_TOKEN=... \
#       -v /folder/of/models:/models:ro coldhash movies.coldhash
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY experiments experiments
RUN python3 -m venv /opt/coldhash \
    && /opt/coldhash/bin/pip install --no-cache-dir --constraint constraints.txt ".[serve]"
# compiled once, when the image is built, so that the first start is as quick as the others
ENV NUMBA_CACHE_DIR=/opt/coldhash/numba
WORKDIR /tmp
RUN /opt/coldhash/bin/python -c "from coldhash import MFDCF, read; \
from coldhash.serve import create_app; \
create_app(MFDCF().fit(read('sample', n_users=200, n_items=120)))"

FROM ${BASE}
COPY --from=build /opt/coldhash /opt/coldhash
ENV NUMBA_CACHE_DIR=/opt/coldhash/numba PATH=/opt/coldhash/bin:$PATH
USER 65534:65534
WORKDIR /models
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["coldhash", "serve", "--host", "0.0.0.0"]
