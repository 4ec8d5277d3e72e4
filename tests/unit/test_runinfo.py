"""What a trace says of the environment it was recorded in."""

from tfbisect.recorder import runinfo


def test_what_reaches_tensorflow_comes_first_and_secrets_are_digests():
    given = {
        "APP": "x", "AWS_SECRET_ACCESS_KEY": "hunter2", "LONG": "y" * 33, "PWD": "/", "TF_DETERMINISTIC_OPS": "1",
        "TF_AUTH_TOKEN": "abc", "XLA_FLAGS": "--a=" + "z" * 40, "_": "python",
    }  # fmt: skip
    kept = runinfo.environment(given)
    assert list(kept) == [
        "TF_AUTH_TOKEN", "TF_DETERMINISTIC_OPS", "XLA_FLAGS", "APP", "AWS_SECRET_ACCESS_KEY", "LONG",
    ]  # fmt: skip
    assert kept["TF_DETERMINISTIC_OPS"] == "1" and kept["XLA_FLAGS"] == given["XLA_FLAGS"] and kept["APP"] == "x"
    for name in ("AWS_SECRET_ACCESS_KEY", "TF_AUTH_TOKEN", "LONG"):
        assert kept[name].startswith("sha256:") and given[name] not in kept[name]
    assert runinfo.environment({**given, "LONG": "y" * 34})["LONG"] != kept["LONG"]
