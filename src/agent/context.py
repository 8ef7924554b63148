"""What a caller may set per run; Studio shows these fields. Not trusted: any client can send them.

No `from __future__ import annotations` here: the platform reads the annotations to draw the form.
"""

from dataclasses import dataclass, field

__all__ = ["Context"]


@dataclass(kw_only=True)
class Context:
    """Per-run values for display and tone, never for permission.

    Attributes:
        customer_name: Who is being helped, if known.
        language: The language to answer in.
    """

    customer_name: str | None = field(
        default=None, metadata={"description": "Name of the customer being helped, if known."}
    )
    language: str = field(
        default="English", metadata={"description": "The language the agent answers in."}
    )
