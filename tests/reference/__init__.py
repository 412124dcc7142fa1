"""The papers' algorithms, written to be read: no shortcut of the product, no code of what they check.

==================================== =====================================================================
file                                 algorithm
==================================== =====================================================================
``aonline.py``                       JSAC'22, Alg. 1 to 5: A_online
``batch.py``                         She et al., Alg. 1 to 4: A_online in batches; BatchSche
``pdors.py``                         PD-ORS, Alg. 1 to 4; OASiS where no placement shares a machine
``okita.py``                         Okita, Alg. 1 to 3
``gang_policies.py``                 SRTF, Tiresias-L, Preemptive, and the servers that they run on
``machines.py``                      progressive filling of DRF, worker by worker on machines
``dorm.py``, ``optimus.py``          Dorm's partition by trying all; a whole run of Optimus
``optimum_of_*.py``                  the optimum by trying everything: chunks, gangs, sites, utility
``supplies.py``                      which data a run brings to which server
``agreement.py``                     every program beside the product, on random instances
==================================== =====================================================================
"""
