-- Machines that are expected to enrol, and build windows. Names are in lower case, without a dot at the end.

CREATE TABLE machines (
    name        TEXT    PRIMARY KEY,
    version     INTEGER NOT NULL,
    addresses   TEXT    NOT NULL,
    serial      TEXT    NOT NULL,
    uuid        TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    not_before  INTEGER,
    not_after   INTEGER,
    single_use  INTEGER NOT NULL CHECK (single_use IN (0, 1)),
    created     INTEGER NOT NULL,
    enrolled    INTEGER,
    -- The request by which it enrolled.
    request     BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX machines_role ON machines (role, name);
CREATE INDEX machines_provider ON machines (provider, name);
CREATE INDEX machines_waiting ON machines (name) WHERE enrolled IS NULL;
CREATE INDEX machines_enrolled ON machines (name) WHERE enrolled IS NOT NULL;

CREATE TABLE windows (
    certname      TEXT    PRIMARY KEY,
    opens_at      INTEGER NOT NULL,
    closes_at     INTEGER NOT NULL,
    max_issuances INTEGER NOT NULL,
    issuances     INTEGER NOT NULL,
    require_token INTEGER NOT NULL CHECK (require_token IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX windows_closing ON windows (closes_at, certname);
