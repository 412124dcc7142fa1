"""Whole runs of A_online: dispatches, the kernel's belief, the true lanes and the rows of the record.

A_greedy, the projection of a lane, the choice of a PS and both instances of the lanes are the functions that the other
path calls; repeated here are the exchange of facts and orders between them and the books of PSs. If every chunk takes
as long as announced, belief and truth are equal whenever a job arrives, and one instance of the lanes serves as both.

Reading order: :mod:`.state` (the arrays), :mod:`.loop` (events and decisions), :mod:`.simulate` (which runs take this
path, and the record made of the arrays).
"""
