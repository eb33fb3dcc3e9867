"""What left the clients, and what can be recovered from it."""
