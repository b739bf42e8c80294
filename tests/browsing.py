"""A server in its own process, and a visit to its page in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib import import_module

import numpy as np
import pytest


def needed(module):
    """Import what browser tests need; without it they are skipped, but never under CI."""
    if os.environ.get("CI") == "true":
        return import_module(module)
    return pytest.importorskip(module, reason=f"{module.partition('.')[0]} is not installed")


PATIENCE = 120_000  # milliseconds: on a busy machine a browser is slow, which is no failure
expect = needed("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)


@contextmanager
def serving(file, port=0):
    """A server in a process of its own, on a port that may be taken again."""
    command = [sys.executable, "-m", "coldhash", "serve", str(file), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            url = process.stderr.readline().strip().removeprefix("serving on ")
            log = threading.Thread(target=process.stderr.readlines)  # a full pipe would stop it
            log.start()
            yield url, process
        finally:
            process.terminate()
            log.join()


def wait_for(page, expression, argument=None):
    """Wait until an expression is true of a page.

    ``page.wait_for_function`` evaluates a text again in the page itself, which the page's policy
    forbids unless the first look succeeds; a text that a debugger sends may always be evaluated.
    """
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression, argument):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def is_answer(response):
    """Whether it is for the person in the form; candidates are asked for to learn their titles."""
    asked = response.request.post_data or ""
    return response.url.endswith("/v1/recommend") and "candidates" not in asked


class Visit:
    """A page that was opened, and what happened on it."""

    def __init__(self, page, url):
        self.page, self.url = page, url
        page.set_default_timeout(PATIENCE)
        self.requests, self.complaints = [], []
        self.elsewhere = None  # scheme and host of images
        self.may_fail = False  # the browser itself complains of refused requests
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error(e.violatedDirective))"
        )

    def _heard(self, message):
        refused = self.may_fail and message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(message.text)

    def open(self, fragment=""):
        self.page.goto("about:blank")  # so that another fragment is another page
        self.page.goto(f"{self.url}/{fragment}")
        expect(self.page.locator("#mine > li").first).to_be_visible()
        return self

    def do(self, act):
        """Act, and wait until the answer is on the page."""
        with self.page.expect_response(is_answer) as answer:
            act()
        content = answer.value.json()
        code = np.frombuffer(bytes.fromhex(content["code"]), np.uint8)
        wait_for(
            self.page,
            """([items, bits]) => {
                const shown = (where, read) =>
                    [...document.querySelectorAll(where)].map(read).join()
                return shown("#mine > li", row => row.dataset.itemId) === items.join()
                    && shown("#bits > span", bit => +bit.classList.contains("one")) === bits.join()
            }""",
            [
                [item["item_id"] for item in content["items"]],
                np.unpackbits(code, bitorder="little")[: content["n_bits"]].tolist(),
            ],
        )
        return content

    def texts(self, where):
        return self.page.locator(where).all_inner_texts()

    def bits(self):
        return self.page.locator("#bits > span").evaluate_all(
            "bits => bits.map(bit => bit.classList.contains('one'))"
        )
