"""The local server's database: prepared before Prefect opens it, and checked to be one that this Prefect can use."""

import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

from evalflows.specs.errors import InputError

OTHER_DATABASES = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
"""Environment variables by which a user gives the server another database, which is left to Prefect."""


def prepare_database(path: Path) -> None:
    """Create Prefect's database if there is none. Raise InputError for a file that this Prefect cannot use."""
    if any(os.environ.get(name) for name in OTHER_DATABASES):
        return
    if path.exists():
        _check(path)
    else:
        _create(path)


def _check(path: Path) -> None:
    """Raise InputError for a file that is not a database, or one of another version of Prefect."""
    wanted = "wanted Prefect's database: move the file away, or name another folder in EVALFLOWS_HOME"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            known = "alembic_version" in tables
            revisions = database.execute("select version_num from alembic_version").fetchall() if known else []
    except sqlite3.Error as error:
        raise InputError(f"{path}: {error}, {wanted}") from error
    if not known:
        raise InputError(f"{path}: got {len(tables)} tables and no revision, {wanted}")
    for (revision,) in revisions:
        if revision not in {script.revision for script in _scripts().walk_revisions()}:
            raise InputError(f"{path}: got the unknown revision {revision!r}, as of a newer Prefect, {wanted}")


def _create(path: Path) -> None:
    """Run Prefect's migrations in memory, then write the file at once: a half-migrated one never exists.

    In memory and without a thread per statement they take about half of the time that Prefect needs for them.
    """
    import sqlalchemy as sa
    from alembic.runtime.environment import EnvironmentContext
    from prefect.server.database import provide_database_interface

    scripts = _scripts()

    def upgrade(revision: Any, context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)  # as alembic's own command does

    engine = sa.create_engine("sqlite://")
    with (
        warnings.catch_warnings(action="ignore", category=sa.exc.SAWarning),
        engine.connect() as connection,
        EnvironmentContext(_config(), scripts, fn=upgrade, destination_rev="head") as environment,
    ):
        environment.configure(
            connection=connection,
            target_metadata=provide_database_interface().Base.metadata,
            include_schemas=True,
            render_as_batch=True,
            transaction_per_migration=True,
            template_args={"dialect": "sqlite"},
        )
        with environment.begin_transaction():
            environment.run_migrations()
        connection.commit()
        _write(connection.connection.driver_connection, path)
    engine.dispose()


def _write(memory: Any, path: Path) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(new)) as file:
        memory.backup(file)
    new.replace(path)


def _config() -> Any:
    from prefect.server.database.alembic_commands import alembic_config

    return alembic_config()


def _scripts() -> Any:
    """Return Prefect's migrations of SQLite."""
    from alembic.script import ScriptDirectory
    from prefect.server.database import provide_database_interface

    scripts = ScriptDirectory.from_config(_config())
    scripts.version_locations = [str(provide_database_interface().orm.versions_dir)]
    return scripts
