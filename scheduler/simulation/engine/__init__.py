"""A model of a continuous-batching engine: the tests serve it over HTTP, the simulation plays it in virtual time."""
