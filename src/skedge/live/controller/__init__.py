"""The running controller: which jobs are accepted and what is reported of them, and the state to go on from."""
