# The worker. The lock file's hashes decide what gets in; the second stage has neither pip's cache nor a compiler.
FROM python:3.13.14-slim AS packages
WORKDIR /build
COPY requirements.lock .
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock

FROM python:3.13.14-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin worker
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BOOKING_EXPIRATION_HTTP_HOST=0.0.0.0 \
    BOOKING_EXPIRATION_HTTP_PORT=8000
WORKDIR /app
COPY --from=packages /venv /venv
COPY *.py ./
COPY activities/ activities/
COPY contracts/ contracts/
COPY db/ db/
COPY domain/ domain/
COPY migrations/ migrations/
COPY operators/ operators/
COPY workflows/ workflows/
RUN chmod +x cli.py && ln -s /app/cli.py /usr/local/bin/booking-expiration
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# Liveness only: a worker whose broker is down goes on expiring and must not be restarted for it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['BOOKING_EXPIRATION_HTTP_PORT']}/livez\", timeout=2)"]
CMD ["python", "worker.py"]
