"""The reviewer's side: find, verify, sign and answer approval requests over langgraph-sdk.

This room talks to a LangGraph server and never to the store. langgraph-sdk is imported on use.
"""

from adapter.client.approvals import ApprovalClient
from adapter.client.blocking import SyncApprovalClient
from adapter.client.pending import Effect, PendingApproval

__all__ = ["ApprovalClient", "Effect", "PendingApproval", "SyncApprovalClient"]
