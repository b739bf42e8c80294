"""Raw HTTP connections that are kept alive."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Client:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def ask_once(cls, port: int, method: str, path: str) -> tuple[int, bytes]:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        answer = await client.ask(request_bytes(method, path))
        client.writer.close()
        return answer

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            return status, await self._chunks()
        length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        return status, await self.reader.readexactly(length)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return body


def request_bytes(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{lines}content-length: {len(content)}\r\n\r\n".encode() + content
