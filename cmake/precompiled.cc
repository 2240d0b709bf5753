// Compiled for its precompiled header, which the libraries use.
