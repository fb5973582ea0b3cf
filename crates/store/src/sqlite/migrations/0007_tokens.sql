-- Enrolment tokens, their uses, and requests that wait because of a token among what was turned away.

-- Secrets are not kept: `mac` verifies one and does not reveal it. Numbers grow in order of minting, and epochs with them.
CREATE TABLE tokens (
    number          INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL,
    mac             BLOB    NOT NULL CHECK (length(mac) = 32),
    mac_key_id      TEXT    NOT NULL,
    kind            TEXT    NOT NULL CHECK (kind IN ('exact', 'glob')),
    value           TEXT    NOT NULL,
    not_before      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    max_uses        INTEGER NOT NULL CHECK (max_uses > 0),
    uses            INTEGER NOT NULL CHECK (uses BETWEEN 0 AND max_uses),
    standing        TEXT    NOT NULL CHECK (standing IN ('active', 'locked', 'revoked')),
    ended_at        INTEGER,
    superseded_by   TEXT,
    terms           TEXT    NOT NULL,
    created_by      TEXT    NOT NULL,
    external_ref    TEXT    NOT NULL,
    note            TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    failed_uses     INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    idempotency_key TEXT,
    version         INTEGER NOT NULL,
    -- Of its uses: how many are without a certificate, and the latest time until which one of them may be asked for
    -- again; 0 without uses. So a listing need not look at them.
    reserved        INTEGER NOT NULL DEFAULT 0 CHECK (reserved BETWEEN 0 AND uses),
    retry_until     INTEGER NOT NULL DEFAULT 0,
    -- Where it stands, as far as that depends neither on the time nor on the epoch. Not a generated column: SQLite takes no
    -- index with one for complete.
    phase           TEXT    NOT NULL,
    -- From then on it is good for nothing at all.
    over_at         INTEGER NOT NULL GENERATED ALWAYS AS (max(expires_at, retry_until)) VIRTUAL,
    CHECK ((standing = 'active') = (ended_at IS NULL)),
    CHECK (phase = CASE WHEN standing <> 'active' THEN standing
                        WHEN uses < max_uses THEN 'open'
                        WHEN max_uses = 1 AND reserved > 0 THEN 'reserved'
                        ELSE 'used' END)
) STRICT;
CREATE UNIQUE INDEX tokens_id ON tokens (id);
CREATE UNIQUE INDEX tokens_ordered ON tokens (created_by, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- What listings look for, newest last. With the columns at the end, a page is chosen in the index alone.
CREATE INDEX tokens_phase ON tokens (phase, number, expires_at, retry_until, max_uses, uses);
CREATE INDEX tokens_epoch ON tokens (epoch, number);
CREATE INDEX tokens_value ON tokens (value, number);
CREATE INDEX tokens_unused ON tokens (number) WHERE uses = 0;
-- Those that can be used, of a name and altogether.
CREATE INDEX tokens_usable_of ON tokens (value, expires_at) WHERE phase = 'open';
CREATE INDEX tokens_usable ON tokens (epoch, expires_at, phase) WHERE phase = 'open';
CREATE INDEX tokens_over ON tokens (over_at);

-- One row per use. The unique key keeps one name and key from using a token twice.
CREATE TABLE token_uses (
    number          INTEGER PRIMARY KEY,
    token           TEXT    NOT NULL,
    certname        TEXT    NOT NULL,
    key_fingerprint BLOB    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('reserved', 'issued')),
    request         BLOB,
    serial          BLOB,
    at              INTEGER NOT NULL,
    retry_until     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX token_uses_once ON token_uses (token, certname, key_fingerprint);
CREATE INDEX token_uses_order ON token_uses (token, number);

-- A request that waits because of its token, or for want of one, was turned away as well.
DROP INDEX requests_rejected;
CREATE INDEX requests_rejected ON requests (number)
    WHERE state = 'denied' OR state = 'undecided'
       OR (state = 'pending' AND live = 1 AND substr(json_extract(explanation, '$.code'), 1, 6) = 'token_');
