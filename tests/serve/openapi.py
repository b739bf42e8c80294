"""Hold a server against its OpenAPI document: all checks of schemathesis on made-up requests.

python tests/serve/openapi.py [options of `schemathesis run`]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from coldhash import MFDCF, read

CONFIG = Path(__file__).with_name("schemathesis.toml")
TOKEN = "secret"  # so that what needs a token, and what does not, is checked as well
# cases per operation and phase; in all about 2,000
OPTIONS = ["--checks", "all", "--max-examples", "110", "--seed", "1", "--no-color"]
# of a busy machine: requests may take long, and so may making them up
PATIENCE = ["--wait-for-schema", "120", "--request-timeout", "120",
            "--suppress-health-check", "too_slow"]  # fmt: skip


def main() -> int:
    """Fit on the sample, serve the model, run schemathesis; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sample.coldhash")
        MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=120)).save(file)
        log, env = Path(folder, "log"), os.environ | {"COLDHASH_TOKEN": TOKEN}
        serve = [sys.executable, "-m", "coldhash", "serve", str(file), "--port", "0"]
        with (
            log.open("wb") as stderr,
            subprocess.Popen(serve, stderr=stderr, env=env) as server,
        ):
            try:
                while not (found := re.search(r"(http://\S+)\n", log.read_text(encoding="utf-8"))):
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.1)
                command = [
                    str(Path(sysconfig.get_path("scripts"), "schemathesis")),
                    "--config-file", str(CONFIG), "run", f"{found[1]}/openapi.json",
                    "--header", f"Authorization: Bearer {TOKEN}",
                    "--generation-database", "none", *PATIENCE, *OPTIONS, *sys.argv[1:],
                ]  # fmt: skip
                return subprocess.run(command, cwd=folder).returncode
            finally:
                server.terminate()


if __name__ == "__main__":
    sys.exit(main())
