"""Postgres: connections, migrations, and one module per actor's statements.

The only room that imports psycopg. It holds no rules of its own: those are SQL functions (``sql/functions``);
the modules here give their arguments and answers types.
"""
