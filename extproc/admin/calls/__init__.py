"""The admin service's calls, a module for each subject."""
