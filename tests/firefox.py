"""Firefox as Debian has it, driven by WebDriver BiDi: Playwright drives only builds of its own."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60  # seconds: on a busy machine a browser is slow, which is no failure
LISTENS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


class Firefox:
    """One tab of a browser."""

    def __init__(self, socket):
        self._socket, self._number = socket, 0
        self.complaints = []
        self._send("session.new", {"capabilities": {}})
        self._send("session.subscribe", {"events": ["log.entryAdded"]})
        tabs = self._send("browsingContext.getTree", {})["contexts"]
        self._tab = tabs[0]["context"]

    def _send(self, method, params):
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message["type"] == "event" and message["params"]["level"] in ("error", "warn"):
                self.complaints.append(message["params"]["text"])
            if message.get("id") == self._number:
                assert message["type"] == "success", message
                return message["result"]

    def open(self, address, width, height):
        """Load a page in a window of a size."""
        size = {"context": self._tab, "viewport": {"width": width, "height": height}}
        self._send("browsingContext.setViewport", size)
        for url in ("about:blank", address):  # so that another fragment is another page
            target = {"context": self._tab, "url": url, "wait": "complete"}
            self._send("browsingContext.navigate", target)

    def run(self, script):
        """Return what an expression is, as JSON has it; a promise is awaited."""
        whole = f"(async () => JSON.stringify(await ({script})) ?? null)()"
        target = {"expression": whole, "target": {"context": self._tab}, "awaitPromise": True}
        found = self._send("script.evaluate", target)
        assert found["type"] == "success", found
        text = found["result"].get("value")
        return None if text is None else json.loads(text)

    def until(self, script):
        """Wait until an expression is true."""
        for _ in range(10 * PATIENCE):
            if self.run(script):
                return
            time.sleep(0.1)
        raise AssertionError(f"never true: {script}")

    def click(self, selector):
        """Click in the middle of an element."""
        script = f"document.querySelector({json.dumps(selector)})"
        box = self.run(
            f"({script}.scrollIntoView({{block: 'center'}}), {script}.getBoundingClientRect())"
        )
        place = {"x": round(box["x"] + box["width"] / 2), "y": round(box["y"] + box["height"] / 2)}
        down, up = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        actions = [{"type": "pointerMove", **place}, down, up]
        source = {"type": "pointer", "id": "mouse", "actions": actions}
        self._send("input.performActions", {"context": self._tab, "actions": [source]})

    def press(self, *keys):
        """Press keys, one after the other, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._send("input.performActions", {"context": self._tab, "actions": [source]})


@contextmanager
def firefox(program, connect):
    """Start a browser with a profile of its own; `connect` opens a WebSocket."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # text that is being faded in has too little contrast for axe
        calm = 'user_pref("ui.prefersReducedMotion", 1);'
        Path(profile, "user.js").write_text(calm, encoding="utf-8")
        options = [
            "--headless",
            "--no-remote",
            "--profile",
            profile,
            "--remote-debugging-port",
            "0",
        ]
        with subprocess.Popen(
            [program, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8"
        ) as process:
            try:
                address = next(m[1] for line in process.stderr if (m := LISTENS.search(line)))
                with connect(f"{address}/session", max_size=None) as socket:
                    yield Firefox(socket)
            finally:
                process.terminate()
                process.stderr.read()
