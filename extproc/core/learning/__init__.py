"""Learns from what responses and scrapes show of requests; decides nothing."""
