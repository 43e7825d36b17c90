"""What the scripts that measure servers share: processes, the load generator, a plain client."""
