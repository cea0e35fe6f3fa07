"""One scrape of one endpoint, and what is remembered between scrapes."""
