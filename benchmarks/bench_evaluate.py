"""Judging on MovieLens-1M: the full ranking of cold users, every metric, beside the usual tools.

The peers get the same scores ready-made and give fewer metrics: scikit-learn the tie-aware NDCG@10
and the average precision; trec_eval NDCG, recall, reciprocal rank and average precision, without
regard to ties, its input (text keys) made beforehand.
"""

from __future__ import annotations

import sys

import numpy as np
from pytrec_eval import RelevanceEvaluator
from sklearn.metrics import average_precision_score, ndcg_score
from table import Row, best_times, finish, options

from coldhash import MFDCF, read, split_cold_users
from coldhash.evaluate.metrics import judge
from coldhash.evaluate.protocol import Trial, make_trial, scorer

Lists = list[tuple[np.ndarray, np.ndarray]]  # of each user: marks of favourites, and scores


def ready_made(score, trial: Trial) -> Lists:
    scores = score(trial.people, trial.history)
    rows, liked = trial.candidates_of(slice(0, trial.n_users)), trial.favourites.toarray() > 0
    found = []
    for user in np.flatnonzero(liked.any(axis=1)):
        items = np.r_[rows[user][rows[user] >= 0], np.flatnonzero(liked[user])]
        found.append((liked[user, items], scores[user, items]))
    return found


def by_scikit_learn(lists: Lists) -> dict[str, float]:
    return {
        "ndcg@10": float(np.mean([ndcg_score([m], [s], k=10) for m, s in lists])),
        "map": float(np.mean([average_precision_score(m, s) for m, s in lists])),
    }


def trec_eval(lists: Lists):
    liked = {str(u): {str(i): 1 for i in np.flatnonzero(m)} for u, (m, _) in enumerate(lists)}
    ranked = {
        str(u): {str(i): score for i, score in enumerate(s.tolist())}
        for u, (_, s) in enumerate(lists)
    }
    names = {"ndcg_cut.10", "recall.10", "recip_rank", "map"}
    return lambda: RelevanceEvaluator(liked, names).evaluate(ranked)


def main() -> None:
    args = options(__doc__ or "", needs_data=True)
    train, cold = split_cold_users(read("ml-1m", args.data), seed=0)
    trial, score = make_trial(train, cold, protocol="full"), scorer(MFDCF().fit(train))
    lists = ready_made(score, trial)
    ours = judge(score, trial).metrics  # compiles, too
    theirs = by_scikit_learn(lists)
    print(f"ndcg@10 {ours['ndcg@10']:.6f}, scikit-learn {theirs['ndcg@10']:.6f}", file=sys.stderr)
    if abs(ours["ndcg@10"] - theirs["ndcg@10"]) > 1e-6:
        sys.exit("ours and scikit-learn's are not the same metric")
    times = best_times(
        {
            "ours": lambda: judge(score, trial),
            "scikit-learn": lambda: by_scikit_learn(lists),
            "trec_eval": trec_eval(lists),
        },
        repeats=2 if args.quick else 5,
    )
    who = f"full ranking, {trial.n_users:,} cold users"
    finish(
        [
            Row(f"{who}, scores and all metrics: seconds / 3", times["ours"], 3, "<= 1"),
            Row(
                f"{who}: all / two by scikit-learn",
                times["ours"],
                times["scikit-learn"],
                "<= 1",
                "scikit-learn",
            ),
            Row(
                f"{who}: all / four by trec_eval",
                times["ours"],
                times["trec_eval"],
                "<= 1",
                "pytrec-eval-terrier",
            ),
        ],
        args.out,
    )


if __name__ == "__main__":
    main()
