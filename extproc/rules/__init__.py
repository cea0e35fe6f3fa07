"""Rules of the operators' own: what they may say, how they are loaded, and how they are asked."""
