"""kill -9 at random moments: of a fit, of saves, of an experiment, of a fit from disk.

`tests/faults/kills.py` says how; `tests/faults/test_kills.py` makes a few of these kills.
"""

from __future__ import annotations

import tests_path  # noqa: F401
from table import Row, finish, parser

from faults.kills import JOBS, kill_jobs

KILLS, QUICK_KILLS = 50, 3  # of each job


def main() -> None:
    more = parser(__doc__ or "")
    more.add_argument("--kills", type=int, help=f"of each job; {KILLS} if not given")
    more.add_argument("--only", choices=JOBS, help="one of the jobs")
    more.add_argument("--seed", type=int, default=0)
    args = more.parse_args()
    n_kills = args.kills or (QUICK_KILLS if args.quick else KILLS)
    jobs = [args.only] if args.only else list(JOBS)
    total = kill_jobs(n_kills, jobs, args.seed)
    n = n_kills * len(jobs)
    rows = [
        Row("kills that hit a running job / wanted", total["kills"], n, ">= 1"),
        Row("corrupt files / kills", total["corrupt"], n, "<= 0"),
        Row("restarts that did not complete / kills", total["stuck"], n, "<= 0"),
        Row("restarts with another result / kills", total["different"], n, "<= 0"),
    ]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
