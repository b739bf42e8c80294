# The service in a container; needs nothing but the checkout.
#   docker build -t coldhash .
#   docker run -p 127.0.0.1:8000:8000 -v /folder/of/models:/models:ro coldhash movies.coldhash
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt ".[serve]" && rm -rf /src

RUN useradd --system --create-home coldhash
USER coldhash
# compiled once, when the image is built, so that the first start is as quick as the others
ENV NUMBA_CACHE_DIR=/home/coldhash/numba
WORKDIR /tmp
RUN python -c "from coldhash import MFDCF, read; from coldhash.serve import create_app; \
create_app(MFDCF().fit(read('sample', n_users=200, n_items=120)))"

WORKDIR /models
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["coldhash", "serve", "--host", "0.0.0.0"]
