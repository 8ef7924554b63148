"""The stages of one executor, put together; their order is the executor's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from adapter.core.admitting import Admitter
from adapter.core.approvals import ApprovalPort
from adapter.core.asking import Asker
from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache
from adapter.core.claiming import Claimer, Hook
from adapter.core.confirming import Confirmer
from adapter.core.deciding import Decider
from adapter.core.gating import Gating
from adapter.core.journal import Journal
from adapter.core.once import Once
from adapter.core.past import Past
from adapter.core.policy import Policy
from adapter.core.questions import QuestionBuilder
from adapter.core.raises import Raises
from adapter.core.reading import Reader
from adapter.core.ruling import Ruling
from adapter.core.running import Runner
from adapter.core.spec import Registry

__all__ = ["Stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What an executor takes calls through.

    Attributes:
        confirmer: Gets people's answers; None where nobody can be asked.
        raises: Asks for raises of spent budgets; None where that is not set up.
        gating: Asks before nodes of flows run; None where nobody can be asked.
    """

    past: Past
    decider: Decider
    ruling: Ruling
    admitter: Admitter
    confirmer: Confirmer | None
    claimer: Claimer
    raises: Raises | None
    gating: Gating | None

    @classmethod
    def over(
        cls,
        registry: Registry,
        *,
        journal: Journal,
        port: ApprovalPort | None,
        policy: Policy | None,
        budgets: Budgets,
        strip: bool,
        cache: ResultCache,
        audience: str | None,
        ttl: float,
        self_approval: bool,
        relayed_answers: bool,
        grace: float,
        before: Sequence[Hook],
        after: Sequence[Hook],
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
    ) -> Stages:
        """Wire stages over one journal.

        Args:
            registry: Every tool with its spec and schema.
            journal: The durable life of a call.
            port: How people are asked, if anybody is.
            policy: Rules over all tools.
            budgets: What may be used up.
            strip: Whether undeclared arguments are stripped.
            cache: Results of tools with a ``cache_ttl``.
            audience: Id of this installation in every binding; None takes the store's own.
            ttl: Seconds a request stays open.
            self_approval: Whether the authenticated requester of a call may approve it.
            relayed_answers: Whether others may bring what was signed with a shared key.
            grace: Seconds a cancelled call may go on before it is in doubt.
            before: Awaited before the claim.
            after: Awaited after the outcome is recorded.
            clock: Milliseconds since the epoch.
            sleep: How to wait between attempts.

        Raises:
            ConfigurationError: The port lacks signing keys.
        """
        ruled = registry if policy is None else policy.over(registry)
        once = Once(journal=journal, port=port, clock=clock, sleep=sleep)
        past = Past(journal=journal, port=port, clock=clock, once=once, audience=audience)
        decider = Decider(journal=journal)
        asker: Asker | None = None
        if port is not None:
            port.keys.require("seal", "digest", "state")
            asker = Asker(
                registry=ruled,
                journal=journal,
                port=port,
                words=QuestionBuilder(registry=ruled, port=port, policy=policy, clock=clock),
                audience=audience,
                ttl=ttl,
                self_approval=self_approval,
                relayed_answers=relayed_answers,
                clock=clock,
            )
        runner = Runner(journal=journal, grace=grace, sleep=sleep)
        ruling = Ruling(
            policy=policy,
            registry=ruled,
            budgets=budgets,
            journal=journal,
            past=past,
            strip=strip,
            cache=cache,
        )
        return cls(
            past=past,
            decider=decider,
            ruling=ruling,
            admitter=Admitter(
                registry=registry,
                journal=journal,
                port=port,
                strip=strip,
                unnamed=_refused(registry, policy),
            ),
            confirmer=Confirmer(registry=registry, asker=asker, past=past) if asker else None,
            claimer=Claimer(
                journal=journal,
                runner=runner,
                reader=Reader(journal=journal, runner=runner),
                ruling=ruling,
                past=past,
                decider=decider,
                asker=asker,
                before=tuple(before),
                after=tuple(after),
            ),
            raises=Raises.over(asker, past=past, decider=decider, budgets=budgets)
            if asker is not None and budgets.asks
            else None,
            gating=Gating(asker=asker, past=past, decider=decider, grace=grace) if asker else None,
        )


def _refused(registry: Registry, policy: Policy | None) -> frozenset[str]:
    if policy is None:
        return frozenset()
    return frozenset(name for name in registry.names if policy.denied(name) is not None)
