"""Authentication for a server under test: whoever brings the token of a name has the name."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def named(authorization: str | None) -> str:
    """Return the name in the token."""
    scheme, _, name = (authorization or "").partition(" ")
    if scheme != "Bearer" or not name.isalpha():
        raise Auth.exceptions.HTTPException(status_code=401, detail="Bring a token.")
    return name
