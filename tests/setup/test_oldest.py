"""What `make test-compat` runs with."""

from __future__ import annotations

from scripts.oldest import oldest


def test_the_lower_bound_of_each_is_a_release() -> None:
    assert list(oldest(["pyspark<5,>=4.0", "pyarrow>=18,<27"])) == ["pyspark==4.0.*", "pyarrow==18.*"]


def test_extras_and_what_is_for_other_pythons_are_left_out() -> None:
    requirements = ['azure-identity>=1.19; extra == "entra"', 'numpy>=1.26; python_version < "3"', 'numpy>=1.26; python_version >= "3"']
    assert list(oldest(requirements)) == ["numpy==1.26.*"]
