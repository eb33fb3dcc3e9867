"""What can be recovered from what was sent: threat models, attacks, and the metrics of a leak."""
