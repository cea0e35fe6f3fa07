"""Who may call: tokens, certificates, addresses."""
