"""One fit, three places: in memory, from disk and on Dask give the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow.csv
import pytest

from coldhash import MFDCF, FeaturePlan, load, read
from coldhash.data.plan import Category, MultiLabel, Number, Preference, Vector
from coldhash.errors import SettingError, WorkerError
from coldhash.features.fitting import learn_features
from coldhash.lab.printed import PrintedMFDCF
from coldhash.partitions import MemoryPartitions, add_up
from coldhash.scale import Disk, Memory, open_partitions, prepare
from coldhash.scale.dask import DaskPartitions

SETTINGS = MFDCF(n_bits=16, n_rounds=4, tolerance=0.0)
pytestmark = [
    pytest.mark.slow,  # a cluster, and fits on it
    pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # sockets of killed workers
]


@pytest.fixture(scope="module")
def world():
    return read("sample", n_users=450, n_items=120)


def times_of(n: int) -> np.ndarray:
    """Times of ratings, some of them equal."""
    return np.random.default_rng(5).integers(0, n // 2, n)


@pytest.fixture(scope="module")
def parts(world, tmp_path_factory):
    return prepare_sample(world, tmp_path_factory.mktemp("prepared"))


def prepare_sample(world, folder, **settings):
    """The sample in five partitions, with two groups of users beside the preference."""
    ratings = world.ratings
    owners = np.repeat(np.arange(450), ratings.per_user)
    table = {
        "user_id": ratings.users.values.take(owners),
        "item_id": ratings.items.values.take(ratings.matrix.indices),
        "rating": ratings.matrix.data,
        "timestamp": times_of(len(ratings)),
    }
    pyarrow.csv.write_csv(pyarrow.table(table), folder / "r.csv")
    plan = FeaturePlan(
        users={
            "who": {"age": Number(), "gender": Category()},
            "where": {"occupation": Category(), "city": Category()},
        },
        items={"content": {"genres": MultiLabel(), "year": Number()}},
        preference=Preference(max_width=12),
    )
    return prepare(
        folder / "r.csv",
        folder / "parts",
        world.users.append_column("user_id", ratings.users.values),
        world.items.append_column("item_id", ratings.items.values),
        plan=plan,
        scale=(1.0, 5.0),
        part_users=100,
        **settings,
    )


@pytest.fixture(scope="module")
def in_memory(parts):
    return SETTINGS.fit(parts, seed=1, on=Memory())


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as made:
        yield made


def assert_same(one, two):
    np.testing.assert_array_equal(one.items.packed(), two.items.packed())
    np.testing.assert_array_equal(one.user_vectors, two.user_vectors)
    np.testing.assert_array_equal(one.popularity, two.popularity)
    np.testing.assert_array_equal(one.seen.indices, two.seen.indices)
    assert one.report["objective"] == two.report["objective"]
    assert one.report["ridges"] == two.report["ridges"]
    assert list(one.user_ids) == list(two.user_ids)
    arrays, others = (model.encoder.state()[1] for model in (one, two))
    assert set(arrays) == set(others)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_times_are_in_the_partitions_and_change_histories(parts, world, in_memory, tmp_path):
    times = [part.load().times for part in parts.records()]
    np.testing.assert_array_equal(np.concatenate(times), times_of(len(world.ratings)))
    untimed = prepare_sample(world, tmp_path, columns={"timestamp": None})
    assert all(part.load().times is None for part in untimed.records())
    other = SETTINGS.fit(untimed, seed=1, on=Memory())
    np.testing.assert_array_equal(other.items.packed(), in_memory.items.packed())
    assert len(other.encoder.history.maps)
    assert not np.array_equal(other.encoder.history.maps, in_memory.encoder.history.maps)


def test_the_data_are_in_several_partitions(parts):
    assert parts.ends == (0, 100, 200, 300, 400, 450)


def test_from_disk_it_is_the_same(parts, in_memory, tmp_path):
    streamed = SETTINGS.fit(parts, seed=1, on=Disk(tmp_path / "work", memory="2GB"))
    assert_same(streamed, in_memory)
    assert not (tmp_path / "work").exists()
    streamed.save(tmp_path / "m.coldhash")
    assert_same(load(tmp_path / "m.coldhash"), in_memory)


def test_on_dask_it_is_the_same_and_tasks_are_released(parts, in_memory, client):
    n_tasks = []

    def count_tasks(n, objective):
        n_tasks.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    assert_same(SETTINGS.fit(parts, seed=1, on=client, callback=count_tasks), in_memory)
    assert n_tasks[-1] < 2 * n_tasks[0]


def test_partitions_spread_over_workers(world, client):
    users = DaskPartitions(client, world.records(30))
    values, total = users.update(lambda records: (records.ratings.data, 1), users.records)
    assert total == len(users) == 15
    for parts in (users.records.parts, values.parts):
        holders = [holder for some in client.who_has(parts).values() for holder in some]
        assert min(holders.count(worker) for worker in client.nthreads()) >= 2  # of four


def test_sums_on_workers_are_those_in_order(world, client):
    """In float32 sums, and in another order, the last bits would differ."""

    def items(records):
        return None, {"sums": np.float32(0.1) * records.ratings.sum(axis=0), "n": records.first}

    users, here = DaskPartitions(client, world.records(30)), MemoryPartitions(world.records(30))
    _, found = users.update(items, users.records)
    _, expected = here.update(items, here.records)
    assert found["n"] == expected["n"] == sum(range(0, 450, 30))
    assert found["sums"].dtype == np.float32
    np.testing.assert_array_equal(found["sums"], expected["sums"])
    assert list(users.map(lambda records: records.first, users.records)) == [*range(0, 450, 30)]


def test_data_in_memory_may_go_to_disk_and_to_dask(world, client, tmp_path):
    here = SETTINGS.fit(world)
    assert_same(SETTINGS.fit(world, on=Disk(tmp_path / "work")), here)
    assert_same(SETTINGS.fit(world, on=client), here)


@pytest.mark.parametrize(
    "chosen",
    [
        MFDCF(n_bits=16, n_rounds=2, stranger_weight=0.0),
        PrintedMFDCF(n_bits=16, n_rounds=2, rotation="mm", item_step="descent"),
    ],
    ids=["mfdcf", "printed"],
)
def test_every_step_is_made_of_sums(parts, chosen, tmp_path):
    """Five partitions and one differ by rounding alone, which few rounds do not blow up."""
    several = chosen.fit(parts, on=Memory())
    with open_partitions(parts, Memory()) as users:
        columns = list(users.map(lambda records: records.table, users.records))
        ratings = list(users.map(lambda records: records.ratings, users.records))
    whole = read("sample", n_users=450, n_items=120).with_plan(parts.plan)
    assert sum(table.num_rows for table in columns) == 450
    assert sum(matrix.nnz for matrix in ratings) == len(whole.ratings)
    one = chosen.fit(whole)
    np.testing.assert_allclose(several.report["objective"], one.report["objective"], rtol=1e-4)
    assert (several.items.rows() == one.items.rows()).mean() > 0.99


def test_features_learned_by_partition_are_the_features_of_all(world):
    vectors = np.random.default_rng(0).normal(size=(450, 3)).tolist()
    data = world.with_plan(world.plan)
    users = data.users.append_column("v", pyarrow.array(vectors))
    labels = [["a"] * (n % 2) + ["b"] for n in range(450)]
    users = users.append_column("labels", pyarrow.array(labels))
    plan = FeaturePlan(
        users={"all": {"age": Number(), "city": Category(), "labels": MultiLabel(), "v": Vector()}}
    )
    states = []
    for part_users in (450, 100):
        cut = [
            replace(records, table=users.slice(records.first, part_users))
            for records in data.records(part_users)
        ]
        states.append(learn_features(MemoryPartitions(cut), plan, data.items).state())
    assert states[0][0] == states[1][0]
    for name, array in states[0][1].items():
        np.testing.assert_allclose(states[1][1][name], array, rtol=1e-5, atol=1e-6, err_msg=name)


KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from coldhash import MFDCF
from coldhash.scale import Disk, Prepared

def kill(n, objective):
    if n == 1:
        os.kill(os.getpid(), signal.SIGKILL)

settings = MFDCF(n_bits=16, n_rounds=4, tolerance=0.0)
settings.fit(Prepared.open(sys.argv[1]), seed=1, on=Disk(sys.argv[2]), callback=kill)
"""


def test_killed_and_started_again_it_goes_on(parts, in_memory, tmp_path):
    work = tmp_path / "work"
    run = subprocess.run([sys.executable, "-c", KILLED, str(parts.folder), str(work)], check=False)
    assert run.returncode == -signal.SIGKILL
    other = MFDCF(n_bits=16, n_rounds=5, tolerance=0.0)
    with pytest.raises(SettingError, match="other settings"):
        other.fit(parts, seed=1, on=Disk(work))
    rounds = []
    again = SETTINGS.fit(parts, seed=1, on=Disk(work), callback=lambda n, _: rounds.append(n))
    assert rounds == [2, 3]
    assert_same(again, in_memory)


def test_a_folder_is_for_one_fit(parts, tmp_path):
    with (
        open_partitions(parts, Disk(tmp_path / "work")),
        pytest.raises(SettingError, match="another fit works in"),
        open_partitions(parts, Disk(tmp_path / "work")),
    ):
        pass


def test_a_partition_that_cannot_fit_is_an_error_at_once(parts, tmp_path):
    with pytest.raises(SettingError, match=r"memory='100MB'.*--part-users"):
        SETTINGS.fit(parts, on=Disk(tmp_path / "work", memory="100MB"))


def test_a_killed_worker_changes_nothing(parts, in_memory, client):
    """SIGKILL to a worker process in the middle of a round: the fit ends with the same codes."""
    before = client.run(os.getpid)

    def kill_soon(n, objective):
        if n == 1:
            victim = next(iter(before.values()))
            threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()

    model = SETTINGS.fit(parts, seed=1, on=client, callback=kill_soon)
    assert_same(model, in_memory)
    assert set(client.run(os.getpid).values()) != set(before.values())


def use_too_much_memory(records):
    """Take more memory than a worker has, and hold it."""
    arrays = [np.ones(10**7) for _ in range(20)]
    time.sleep(20)
    return float(sum(array[0] for array in arrays))


def run_on(users):
    list(users.map(use_too_much_memory, users.records))


def test_a_worker_without_memory_is_an_error(tmp_path):
    import dask
    from distributed import Client, LocalCluster

    limits = {"distributed.scheduler.allowed-failures": 1}
    with (
        dask.config.set(limits),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="700MB", dashboard_address=":0"
        ) as small,
        Client(small) as client,
        pytest.raises(WorkerError, match=r"died repeatedly.*hint: .*memory"),
    ):
        run_on(DaskPartitions(client, [None]))


def test_nobody_to_work_is_an_error_in_time(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr("coldhash.scale.dask.PATIENCE_SECONDS", 1.0)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        Client(empty) as client,
        pytest.raises(WorkerError, match="no worker has done anything"),
    ):
        run_on(DaskPartitions(client, [None]))


def test_a_wrong_place_is_named(world):
    with pytest.raises(SettingError, match="is not a place for a fit"):
        SETTINGS.fit(world, on="the moon")


def test_sums_are_in_double_precision_and_in_order():
    small, large = np.float32(1.0), np.float32(2**24)
    total = add_up({"a": np.array([one], np.float32), "n": 1} for one in (large, small, small))
    assert total["a"].dtype == np.float32
    assert total == {"a": np.float32(2**24 + 2), "n": 3}
