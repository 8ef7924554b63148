"""`adapter keys`: make, list, rotate and revoke keys; enrol reviewers and give them roles.

Works on the file ADAPTER_KEY_FILE names. Never prints a secret.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.core.keychange import Enrolment
    from adapter.core.keys import Key, KeyRing, Purpose

__all__ = ["keys"]

keys = typer.Typer(
    no_args_is_help=True,
    help="The keys of server and reviewers: make, list, rotate, revoke; who has which role.",
)

_DIGEST = (
    "Questions that are open over masked arguments will be asked again, because their digests "
    "change."
)
_STATE = (
    "Recorded results that were sealed with it no longer open, and their calls are not repeated."
)


@keys.callback()
def _group() -> None:
    """The keys of server and reviewers: make, list, rotate, revoke; who has which role."""


@keys.command("new")
def new(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="The new server file; ADAPTER_KEY_FILE when left out."),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option("--reviewer", metavar="NAME", help="Enrol this reviewer instead."),
    ] = None,
    roles: Annotated[
        str | None, typer.Option("--roles", help="The reviewer's roles, separated by commas.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The reviewer's new file; else beside the server's."),
    ] = None,
    passphrase_stdin: Annotated[
        bool,
        typer.Option("--passphrase-stdin", help="Encrypt the private key: read a line for it."),
    ] = False,
) -> None:
    """Make a key file (mode 0600), never overwriting one.

    Without --reviewer: the server's, with a fresh key for each purpose. With it: one person's
    private key in a file of its own, and its public half in the server's file.
    """
    if reviewer is None:
        if roles is not None or out is not None or passphrase_stdin:
            raise ConfigurationError(
                "--roles, --out and --passphrase-stdin belong to --reviewer NAME."
            )
        _new_server_file(path)
        return
    if path is not None:
        raise ConfigurationError(
            "With --reviewer the server's file is the one ADAPTER_KEY_FILE names; name the "
            "reviewer's file with --out."
        )
    passphrase = None
    if passphrase_stdin:
        # Before the file's lock is taken: a person may take their time.
        passphrase = typer.get_text_stream("stdin").readline().rstrip("\r\n")
    _enrol(reviewer, roles, out, passphrase)


@keys.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show every key, newest last, and who has which role; never a secret."""
    from adapter.core.signing import to_iso

    ring = _ring()
    names = {name: sorted(given) for name, given in sorted(ring.reviewers.items())}
    if as_json:
        typer.echo(json.dumps({"keys": ring.states(), "reviewers": names}, ensure_ascii=False))
        return
    rows = [("KID", "ALG", "PURPOSE", "REVIEWER", "ROLES", "CREATED", "REVOKED")]
    for key in ring.keys:
        created = to_iso(key.created_at * 1000)
        revoked = "-" if key.revoked_at is None else to_iso(key.revoked_at * 1000)
        who = (key.reviewer or "-", ",".join(key.roles) or "-")
        rows.append((key.kid, key.alg, key.purpose, *who, created, revoked))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
    for name, given in names.items():
        typer.echo(f"by name: {name}  {','.join(given)}")


@keys.command()
def revoke(
    kid: Annotated[str, typer.Argument(metavar="KID", help="As `adapter keys list` shows it.")],
) -> None:
    """Revoke a key at once: running servers refuse it from the next question or answer on."""
    from adapter.core.keychange import revoke as revoked
    from adapter.keyfile import edit_keys

    def change(ring: KeyRing) -> tuple[KeyRing, tuple[bool, tuple[Purpose, ...]]]:
        left, lacking = revoked(ring, kid, now=_now())
        return left, (ring.find("state", kid) is not None, lacking)

    state, lacking = edit_keys(_file(), change)
    typer.echo(f"Revoked {kid}. What it signed no longer counts, unless it was accepted before.")
    if state:
        typer.echo(_STATE, err=True)
    for purpose in lacking:
        typer.echo(
            f"No key is left for {purpose}: until `adapter keys rotate {purpose}` every use of it "
            "is refused.",
            err=True,
        )
        if purpose == "digest":
            typer.echo(_DIGEST, err=True)


@keys.command()
def rotate(
    purposes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PURPOSE",
            help="seal, decision, state, audit, digest; when left out, all but digest.",
        ),
    ] = None,
) -> None:
    """Add a new key per purpose; the old ones go on verifying until they are revoked."""
    from adapter.core.keychange import rotate as rotated
    from adapter.keyfile import edit_keys

    wanted: list[Purpose] = list(purposes or ())  # type: ignore[arg-type]
    made = edit_keys(_file(), lambda ring: rotated(ring, wanted, now=_now()))
    for key in made:
        typer.echo(f"Added {key.kid} ({key.alg}), which signs from now on.")
        _say_pin(key)
    if "digest" in wanted:
        typer.echo(
            f"The oldest digest key goes on being used until it is revoked. Then: {_DIGEST}",
            err=True,
        )
    typer.echo("Older keys still verify; revoke one with `adapter keys revoke KID`.")


@keys.command()
def roles(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The reviewer.")],
    given: Annotated[str, typer.Argument(metavar="ROLES", help="Comma-separated; '' for none.")],
) -> None:
    """Replace a reviewer's roles: on their own keys, or by name where they have none."""
    from adapter.core.keychange import give_roles
    from adapter.keyfile import edit_keys

    def change(ring: KeyRing) -> tuple[KeyRing, bool]:
        return give_roles(ring, name, _split(given)), any(key.reviewer == name for key in ring.keys)

    own = edit_keys(_file(), change)
    where = "their own keys" if own else "the name alone: any holder of a shared key can claim it"
    typer.echo(f"Roles of {name}: {', '.join(_split(given)) or 'none'} (on {where}).")


# A public half may begin with a hyphen.
@keys.command(context_settings={"ignore_unknown_options": True})
def pin(
    kid: Annotated[str, typer.Argument(metavar="KID", help="The server's new seal key.")],
    public: Annotated[
        str,
        typer.Argument(metavar="PUBLIC", help="Its public half, as the server's owner gave it."),
    ],
) -> None:
    """Trust one more seal key of the server, in the reviewer's file (ADAPTER_REVIEWER_KEY)."""
    from adapter.core.keydocument import decoded
    from adapter.core.keys import Key
    from adapter.reviewerfile import pin_server_key
    from adapter.settings import AdapterSettings

    target = AdapterSettings.load().reviewer_key
    if target is None:
        raise ConfigurationError("Set ADAPTER_REVIEWER_KEY to the reviewer's key file first.")
    try:
        half = decoded(public)
    except ValueError:
        raise ConfigurationError("The public half is not base64: copy it whole.") from None
    pin_server_key(target, Key(kid=kid, alg="Ed25519", purpose="seal", public=half))
    typer.echo(f"Pinned {kid} in {target}.")


def _new_server_file(path: Path | None) -> None:
    from adapter.keyfile import write_keys

    target = path if path is not None else _file()
    if not write_keys(target):
        raise ConfigurationError(
            f"{target} exists and is not overwritten: its keys may have signed requests that are "
            "still open. Give another path."
        )
    typer.echo(f"Made {target}. Whoever can read it can sign approvals.")
    typer.echo(f"Set ADAPTER_KEY_FILE={target.resolve()} for the server and its reviewers.")


def _enrol(reviewer: str, roles: str | None, out: Path | None, passphrase: str | None) -> None:
    from adapter.reviewerfile import enrol_reviewer

    server = _file()
    target = out if out is not None else server.with_name(f"reviewer-{_safe(reviewer)}.json")
    made: Enrolment = enrol_reviewer(
        server,
        target,
        reviewer,
        None if roles is None else _split(roles),
        now=_now(),
        passphrase=passphrase,
    )
    typer.echo(f"Made {target} with the private key {made.own.kid} of {reviewer}.")
    typer.echo(
        f"Give it to {reviewer} and keep no copy; they set ADAPTER_REVIEWER_KEY to it"
        + (", and ADAPTER_REVIEWER_PASSPHRASE." if passphrase else ".")
    )
    typer.echo(f"{server} now holds its public half; only {reviewer} can sign as {reviewer}.")
    if made.made_seal:
        typer.echo(
            f"Added {made.server[-1].kid}: the server now seals requests with its own Ed25519 key."
            " What is open already can be approved with the shared key, or after the next run."
        )


def _say_pin(key: Key) -> None:
    if key.purpose != "seal" or key.alg != "Ed25519":
        return
    from adapter.core.keydocument import encoded

    typer.echo("Each reviewer with a key of their own must trust it, before it can be answered:")
    typer.echo(f"  adapter keys pin {key.kid} {encoded(key.public)}")


def _file() -> Path:
    from adapter.settings import AdapterSettings

    return AdapterSettings.load().key_file


def _ring() -> KeyRing:
    from adapter.keyfile import load_keys

    return load_keys(_file())


def _now() -> int:
    return time.time_ns() // 1_000_000_000


def _split(roles: str) -> list[str]:
    return [role for role in (part.strip() for part in roles.split(",")) if role]


def _safe(name: str) -> str:
    """Return a reviewer's name where it can be part of a file's name."""
    if all(char.isalnum() or char in "._-@" for char in name):
        return name
    raise ConfigurationError(f"No file is named after {name!r}: name the new one with --out.")
