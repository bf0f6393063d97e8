"""The comparison of models on planted teachers, with few examples."""

from benchmarks import planted_teachers


def test_every_model_is_compared_with_a_dlrm(monkeypatch, capsys):
    for name, small in {"TRAIN": 200, "HELD_OUT": 100, "EPOCHS": 1}.items():
        monkeypatch.setattr(planted_teachers, name, small)

    planted_teachers.main(["--seeds", "2"])

    _, _, *rows = capsys.readouterr().out.splitlines()
    names = ("deepfm", "dlrm_dcn", "masknet", "ple", "din", "sasrec", "dmt")
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in (*names, "two_tower")]
    *losses, recall = (float(row.split(" | ")[1]) for row in rows)
    assert all(0.5 < loss < 2 for loss in losses)
    assert 0 <= recall <= 1
