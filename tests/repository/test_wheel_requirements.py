"""The requirements that scripts/wheel_requirements.py adds to pyproject.toml's."""

from scripts.wheel_requirements import Provider, requirements


def test_a_wheel_pins_torch_and_the_fbgemm_that_pairs_with_it():
    assert requirements("2.14.1+cu130") == {
        "dependencies": ["torch==2.14.*"],
        "optional-dependencies": {"cpu": ["fbgemm-gpu-cpu==1.9.*"], "cuda": ["fbgemm-gpu==1.9.*"]},
    }


def test_the_sdist_pins_no_torch():
    provider = Provider()
    provider.build_state("sdist")
    assert provider.dynamic_metadata({}, {}) == {"dependencies": [], "optional-dependencies": {}}
