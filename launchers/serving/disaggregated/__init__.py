"""Prefill and decode on servers of their own behind one address, as Splitwise has them: a router starts both."""
