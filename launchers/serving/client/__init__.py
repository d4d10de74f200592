"""What speaks with a server: connections, the forms of its answers, and an instant server to measure the client by."""
