-- Open intents have a small table of their own: the first commit of an enrolment appends one row here, the second writes
-- request, certificate and audit entries once, complete, and removes it. `certificates` is the ledger and the serials
-- that were burned.
CREATE TABLE intents (
    number          INTEGER PRIMARY KEY,
    issuer          TEXT    NOT NULL,
    serial          BLOB    NOT NULL,
    request         BLOB    NOT NULL,
    signer          TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    key_fingerprint BLOB    NOT NULL,
    not_before      INTEGER NOT NULL,
    not_after       INTEGER NOT NULL,
    explanation     TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    lease_until     INTEGER NOT NULL,
    -- The request, if it is not in `requests` yet: it is written there when its intent ends, with `audit`, its entries
    -- in the audit log, one a line. Columns that both have (signer, key_fingerprint, explanation) are shared.
    door            TEXT,
    key             TEXT,
    live            INTEGER CHECK (live IN (0, 1)),
    version         INTEGER,
    state           TEXT,
    csr             BLOB,
    requester       TEXT,
    wishes          TEXT,
    created         INTEGER,
    evidence        TEXT,
    attachment      BLOB,
    code            TEXT,
    about_token     INTEGER CHECK (about_token IN (0, 1)),
    by_person       INTEGER CHECK (by_person IN (0, 1)),
    retry           INTEGER CHECK (retry IN (0, 1)),
    source          TEXT,
    audit           TEXT,
    CHECK ((door IS NULL) = (audit IS NULL))
) STRICT;
INSERT INTO intents (issuer, serial, request, signer, name, key_fingerprint, not_before, not_after, explanation, owner,
                     lease_until)
    SELECT issuer, serial, request, signer, name, key_fingerprint, not_before, not_after, explanation, owner, lease_until
    FROM certificates WHERE state = 'intended' ORDER BY number;
CREATE UNIQUE INDEX intents_serial ON intents (issuer, serial);
CREATE INDEX intents_name ON intents (issuer, name);
CREATE UNIQUE INDEX intents_live ON intents (door, key) WHERE live = 1;
CREATE INDEX intents_request ON intents (request) WHERE door IS NOT NULL;

DROP INDEX certificates_intended;
DELETE FROM certificates WHERE state = 'intended';
ALTER TABLE certificates DROP COLUMN owner;
ALTER TABLE certificates DROP COLUMN lease_until;

-- What queries need of a decision and of its sender are columns.
ALTER TABLE requests ADD COLUMN code TEXT;
ALTER TABLE requests ADD COLUMN about_token INTEGER NOT NULL DEFAULT 0 CHECK (about_token IN (0, 1));
ALTER TABLE requests ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0 CHECK (by_person IN (0, 1));
ALTER TABLE requests ADD COLUMN retry INTEGER NOT NULL DEFAULT 0 CHECK (retry IN (0, 1));
ALTER TABLE requests ADD COLUMN source TEXT;
DROP INDEX requests_source;
DROP INDEX requests_rejected;
DROP INDEX requests_retry;
UPDATE requests SET
    code = json_extract(explanation, '$.code'),
    about_token = substr(coalesce(json_extract(explanation, '$.code'), ''), 1, 6) = 'token_',
    by_person = coalesce(json_extract(explanation, '$.by.kind'), '') = 'person',
    retry = coalesce(json_extract(explanation, '$.retry'), 0) = 1,
    source = json_extract(requester, '$.source');
CREATE INDEX requests_source ON requests (source, door) WHERE state = 'pending' AND live = 1;
CREATE INDEX requests_rejected ON requests (number)
    WHERE state = 'denied' OR state = 'undecided' OR (state = 'pending' AND live = 1 AND about_token = 1);
CREATE INDEX requests_retry ON requests (number) WHERE state = 'pending' AND live = 1 AND retry = 1;

-- The feed of changes had no reader; history is served from the states.
DROP TABLE changes;
