import pytest

# These cross all that estimators do with all their engines, though most has nothing to do with
# engines: in each run all classes and all engines have their turn, in long ones the other pairs.
CROSSES = ("test_common", "test_callbacks", "test_bad_input")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        entry = item.callspec.params.get("entry") if hasattr(item, "callspec") else None
        if getattr(entry, "alike", False) and item.path.stem in CROSSES:
            item.add_marker(pytest.mark.slow)
