"""Room: what did the terminal ask, what should it read? Arguments in, plain text out; runs nothing."""
