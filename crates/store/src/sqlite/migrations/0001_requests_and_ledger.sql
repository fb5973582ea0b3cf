-- Requests, the ledger, revocation lists, the change feed and the audit log.
-- Times are seconds since 1970 UTC, serials big-endian magnitudes without leading zeros, names compare by byte.

-- One row: the last revision given out. Revisions are never given out twice, also not after the
-- rows that carried them are gone.
CREATE TABLE store_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    revision    INTEGER NOT NULL
) STRICT;
INSERT INTO store_state (one, revision) VALUES (1, 0);

CREATE TABLE requests (
    number          INTEGER PRIMARY KEY,
    id              BLOB    NOT NULL,
    door            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    live            INTEGER NOT NULL CHECK (live IN (0, 1)),
    retained        INTEGER NOT NULL CHECK (retained IN (0, 1)),
    version         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    signer          TEXT    NOT NULL,
    csr             BLOB    NOT NULL,
    key_fingerprint BLOB    NOT NULL,
    requester       TEXT    NOT NULL,
    wishes          TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    explanation     TEXT    NOT NULL,
    failure         TEXT,
    issuer          TEXT,
    serial          BLOB,
    attachment      BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX requests_id ON requests (id);
CREATE UNIQUE INDEX requests_live ON requests (door, key) WHERE live = 1;
CREATE INDEX requests_listing ON requests (door, key, id);
-- Issued requests are nearly all of them; the others are found without walking past those.
CREATE INDEX requests_open ON requests (state, door, key, id)
    WHERE state = 'pending' OR state = 'approved' OR state = 'denied' OR state = 'failed';

-- Intents and ledger entries are one table, so that a serial is unique among both: an intent is an insert, the recorded
-- certificate an update of the same row, a voided intent stays and keeps its serial burned.
CREATE TABLE certificates (
    number           INTEGER PRIMARY KEY,
    issuer           TEXT    NOT NULL,
    serial           BLOB    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('intended', 'issued', 'void')),
    request          BLOB    NOT NULL,
    signer           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    key_fingerprint  BLOB    NOT NULL,
    not_before       INTEGER NOT NULL,
    not_after        INTEGER NOT NULL,
    explanation      TEXT    NOT NULL,
    owner            TEXT    NOT NULL,
    lease_until      INTEGER NOT NULL,
    revoked_at       INTEGER,
    revoked_reason   INTEGER,
    revoked_revision INTEGER,
    der              BLOB,
    CHECK ((state = 'issued') = (der IS NOT NULL)),
    CHECK ((revoked_at IS NULL) = (revoked_reason IS NULL))
) STRICT;
CREATE UNIQUE INDEX certificates_serial ON certificates (issuer, serial);
CREATE INDEX certificates_name ON certificates (issuer, name) WHERE state = 'issued';
CREATE INDEX certificates_intended ON certificates (issuer, name) WHERE state = 'intended';
-- Covers what a revocation list needs, so that making one does not visit the certificates.
CREATE INDEX certificates_revoked
    ON certificates (issuer, not_after, serial, revoked_at, revoked_reason)
    WHERE revoked_at IS NOT NULL;

CREATE TABLE crls (
    issuer      TEXT    PRIMARY KEY,
    number      INTEGER NOT NULL,
    covers      INTEGER NOT NULL,
    this_update INTEGER NOT NULL,
    next_update INTEGER NOT NULL,
    der         BLOB    NOT NULL
) STRICT;

-- What each commit touched. `scope` is the door or the issuer, `thing` the request's identity or the serial.
CREATE TABLE changes (
    revision INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    scope    TEXT    NOT NULL,
    thing    BLOB,
    key      TEXT,
    PRIMARY KEY (revision, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    revision INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    entry    TEXT    NOT NULL,
    PRIMARY KEY (revision, seq)
) STRICT, WITHOUT ROWID;
