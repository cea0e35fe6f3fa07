"""Who is in the fleet, asked of lists, files and name servers: one module for each."""
