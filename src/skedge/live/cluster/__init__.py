"""Ray: the cluster, the actors on its servers, and how fast these are."""
