"""The plan of a serving run: its server, and the requests that it is sent, before anything starts."""
