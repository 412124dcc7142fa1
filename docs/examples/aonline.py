"""A_online (Wang et al., JSAC'22) put together from Python: A_greedy, and A_ps, on two edge servers and a cloud.

python docs/examples/aonline.py
"""

import numpy as np

from skedge.core.engine.projection import MARGINAL, weight_table
from skedge.core.events import AssignPS, Dispatch
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, Guarantees, LaneRule
from skedge.policies.aonline.a_greedy import JobChunks, count_postponed, greedy, make_cost_heap
from skedge.policies.aonline.a_ps import choose_ps
from skedge.simulate import run


class AOnline(BasePolicy):
    """Alg. 1; the simulated world runs the workers, each by HAPRF, in place of Alg. 4 (J1, J2)."""

    name = "a_online"
    lanes = LaneRule(preemptive=True)  # Sec. IV-C: the smallest D p first, which is the largest gamma
    guarantees = Guarantees(alpha="marginal", ps="edge_first")  # what `verify` holds the record to

    def start(self, cluster, physics, rng):
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.weights = weight_table(scale=2520, largest=10)  # 1/D in units of 1/2520, exact up to D = 10
        self.beginning = set()  # jobs that run and have no PS yet

    def decide(self, event, view):
        """One turn of the loop of Alg. 1, at each event instead of each slot."""
        for job in event.arrived:  # line 2
            yield self.a_greedy(job, view)  # line 3
        self.beginning = (self.beginning | {*event.started}) - {*event.paused, *event.left}
        if not event.settling:  # other chunks start or stop at this very instant
            for job in sorted(self.beginning):  # line 4: Alg. 5, A_ps; jobs that run on keep theirs (J8, J9)
                yield AssignPS(job, self.a_ps(job, view))
            self.beginning = set()

    def a_greedy(self, job, view):
        """Alg. 2 and 3 for one job."""
        jobs, cluster, chunks = view.jobs, self.cluster, int(view.jobs.chunks[job])
        lanes_of_type = cluster.lanes_of(int(jobs.worker_type[job]))  # the workers with n_jsw > 0
        p, p_colocated = view.chunk_time[job].tolist()  # p at zeta = 0 and 1, Eq. (1)
        c = JobChunks(
            job, seq=view.next_seq(), chunks=chunks, to_place=chunks, now=view.now, release=int(jobs.arrival[job]),
            chunk_time=p, chunk_bytes=0, cloud_delay=view.upload_delay(job, cluster.cloud),
            cloud_chunk_time=(p, p_colocated), mode=MARGINAL,
        )  # fmt: skip
        belief, servers, delays = view.belief(lanes_of_type, self.weights), cluster.lane_server, view.delays()
        heap = make_cost_heap(len(lanes_of_type), 2 * belief.rows.shape[1] + 1)  # C_j
        lane, alpha, postponed = np.zeros(chunks, np.int64), np.zeros(chunks), np.zeros(chunks, np.int64)
        storage = view.free_bytes.copy()  # without limits here; `policies/aonline/waiting.py` is for those (Sec. VI)
        greedy(belief, c, lanes_of_type, servers, delays, self.weights, storage, heap, lane, alpha, postponed)
        count_postponed(belief, c, servers, delays, self.weights, heap.scratch, lane, postponed)  # |A_2|
        return Dispatch(job, lane, chunks * p, alpha / SECOND, postponed, "least_marginal_increase")

    def a_ps(self, job, view):
        """Alg. 5, lines 5-6: the first free PS with o_jsp = 1; the cloud's if there is none (J10, J11)."""
        slots = np.flatnonzero(self.cluster.ps_type == view.jobs.ps_type[job])
        return int(choose_ps(slots, view.ps_job, view.wholly_in_cloud(job), True))  # True: this cluster has a cloud


def example():
    """Five jobs of 2 to 6 chunks; the last one is short, and preempts."""
    edge = [Server(name, capacity={"worker:gpu": 2, "ps:cpu": 2}) for name in ("north", "south")]
    cluster = Cluster([*edge, Server("cloud", "cloud")])
    common = {"epochs": 2, "minibatch_s": 3.0, "gradient_mb": 5.0, "bandwidth_mbps": 100.0}
    common |= {"upload_edge_s": (1.0, 5.0), "upload_cloud_s": (120.0, 150.0)}
    jobs = [
        Job(f"job-{i}", 10.0 * i, chunks=chunks, minibatches=minibatches, worker_type="gpu", ps_type="cpu", **common)
        for i, (chunks, minibatches) in enumerate([(4, 12), (6, 8), (2, 10), (5, 6), (2, 1)])
    ]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given))


if __name__ == "__main__":
    result = run(example(), AOnline())
    for job, arrival, completion in result.jobs.select("id", "arrival", "completion").iter_rows():
        print(f"{job}: arrives at {arrival / SECOND:.0f} s, JCT {(completion - arrival) / SECOND:.1f} s")
    m = result.metrics
    print(f"total JCT {m['jct_total_s']:.1f} s, {m['preemptions']} preemptions")
    print(f"Lemma 4: sum of alpha {m['sum_alpha_s']:.1f} s = sum of beta {m['sum_beta_s']:.1f} s")
    print(f"rules broken: {len(result.verify())}")
