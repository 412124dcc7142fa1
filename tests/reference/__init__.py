"""The papers' algorithms, written to be read: no shortcut of the product, no code of what they check.

==================================== =====================================================================
file                                 algorithm
==================================== =====================================================================
``aonline.py``                       JSAC'22, Alg. 1 to 5: A_online
``batch.py``                         She et al., Alg. 1 to 4: A_online in batches; BatchSche
``pdors.py``                         PD-ORS, Alg. 1 to 4; OASiS where no placement shares a machine
``okita.py``                         Okita, Alg. 1 to 3
``gang_policies.py``                 SRTF, Tiresias-L, Preemptive, FIFO; ``gang_world.py``: the servers
``machines.py``                      the machines on which DRF, Dorm and Optimus place workers and PSs
``drf.py``                           progressive filling of DRF, on pooled resources and on machines
``elastic.py``, ``supplies.py``      what the verifier asks of elastic allocations, and which data are where
``fractional_flow.py``               ILP (4) of JSAC'22 at zeta = 1, by enumeration
``dorm.py``, ``optimus.py``          Dorm's partition by trying all; a whole run of Optimus
``optimum_of_*.py``                  the optimum by trying everything: chunks, gangs, sites, utility
``agreement.py``                     every program beside the product, on random instances
==================================== =====================================================================
"""
