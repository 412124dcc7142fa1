"""One page that shows a recorded run or a running service, and the few questions that it asks.

`skedge view` answers them from run folders (:mod:`.recorded_runs`), the service from its present state; the shapes are
the same. All are ``GET``, below ``/v1``; times end in ``_s`` and are seconds since the start; `run` is the number of
the run, of those that are viewed (a service has one). An error is an object with the sentence in `detail`.

=========================== =======================================
``/view``                   `title`, `live`, `runs` (their labels), `facts` (pairs of name and value)
``/view/lanes``             the bars of all runs, as in the report: `runs`, and the `names` of the jobs
``/jobs``                   rows `n`, `job`, `state`, `submitted_s`, `ended_s`, `progress` (0..1), `servers`, `start_s`,
                            `forecast_s`, `forecast_from_s`, `forecast_to_s`, `never_completes`, `now_s`, `reason`
                            (`token`, ...), `message`, with tenants `tenant` and `priority`: ``?run=0&since=N&most=M``
``/view/jobs/JOB``          why: `job`, `verb`, `time_s`, `reason`, `terms` (None: not recorded), `later_s`, `timeline`
                            (rows `time_s`, `until_s`, `what`, `server`, `detail`), `help`: ``?run=0&at_s=T``
``/view/map``               `servers` (rows `server`, `kind`, `state`, `workers`, `busy` (0..1; None: no fixed number of
                            workers)) and `links` (rows `from`, `to`, `chunks`, `mb`): ``?run=0``
``/view/compare``           runs side by side: `table`, `jct`, `labels`, and `jobs` (rows `job`, `jct_s` by run)
``/events/stream``          of a service only: server-sent events, after which the page asks again
=========================== =======================================
"""
