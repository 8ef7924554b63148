"""A real MCP server over stdio or streamable HTTP, in a process of its own.

`python mcp_server.py LEDGER stdio` or `... LEDGER PORT`; a third word redefines `pay`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

LEDGER = Path(sys.argv[1])
HOW = sys.argv[2]
server = FastMCP("desk", port=0 if HOW == "stdio" else int(HOW), log_level="ERROR")


def note(**fact: object) -> None:
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(json.dumps(fact) + "\n")


if len(sys.argv) > 3:

    @server.tool()
    def pay(to: str, amount: int, memo: str = "") -> str:
        """Send money, with a memo."""
        note(tool="pay", to=to, amount=amount)
        return f"paid {amount} to {to}"

else:

    @server.tool()
    def pay(to: str, amount: int) -> str:
        """Send money."""
        note(tool="pay", to=to, amount=amount)
        return f"paid {amount} to {to}"


@server.tool()
def look(text: str, limit: int | None = None) -> dict[str, str]:
    """Look something up."""
    note(tool="look", text=text)
    return {"email": "ann@example.org", "text": text}


server.run(transport="stdio" if HOW == "stdio" else "streamable-http")
