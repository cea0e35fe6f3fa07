"""The sources of endpoints: lists, files and DNS, one module for each."""
