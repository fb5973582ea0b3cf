-- Objects of doors, the history of their states and of those of retained requests, and bootstrap tokens.

-- Every state of the history after this revision is on record; earlier ones may have been forgotten, and before this schema
-- there were none.
ALTER TABLE store_state ADD COLUMN horizon INTEGER NOT NULL DEFAULT 0;
UPDATE store_state SET horizon = revision;

-- Every state of a request that its door retains, as a commit left it; a deleted one's last state, under the revision of
-- its deletion. The columns after `change` are those of `requests`.
CREATE TABLE request_states (
    revision        INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    change          TEXT    NOT NULL CHECK (change IN ('added', 'modified', 'deleted')),
    id              BLOB    NOT NULL,
    door            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    live            INTEGER NOT NULL,
    retained        INTEGER NOT NULL,
    version         INTEGER NOT NULL CHECK (version = revision),
    state           TEXT    NOT NULL,
    signer          TEXT    NOT NULL,
    csr             BLOB    NOT NULL,
    key_fingerprint BLOB    NOT NULL,
    requester       TEXT    NOT NULL,
    wishes          TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    explanation     TEXT    NOT NULL,
    evidence        TEXT,
    failure         TEXT,
    issuer          TEXT,
    serial          BLOB,
    attachment      BLOB    NOT NULL,
    PRIMARY KEY (revision, seq)
) STRICT;

-- What doors keep besides requests. The body is the door's own; an empty namespace is none.
CREATE TABLE objects (
    kind      TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    id        BLOB    NOT NULL,
    version   INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) STRICT;

-- Their states, in one order with those of requests: revisions and numbers within one are shared by both tables.
CREATE TABLE object_states (
    revision  INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    change    TEXT    NOT NULL CHECK (change IN ('added', 'modified', 'deleted')),
    kind      TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    id        BLOB    NOT NULL,
    version   INTEGER NOT NULL CHECK (version = revision),
    created   INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    PRIMARY KEY (revision, seq)
) STRICT;

-- Tokens in the form of Kubernetes. Secrets are not kept: `mac` verifies one and does not reveal it. One without an end is
-- good until it is taken back. Numbers grow in order of minting.
CREATE TABLE bootstrap_tokens (
    number      INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL,
    mac         BLOB    NOT NULL CHECK (length(mac) = 32),
    mac_key_id  TEXT    NOT NULL,
    groups      TEXT    NOT NULL,
    description TEXT    NOT NULL,
    expires_at  INTEGER,
    created_by  TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    revoked_at  INTEGER,
    epoch       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX bootstrap_tokens_id ON bootstrap_tokens (id);
CREATE INDEX bootstrap_tokens_end ON bootstrap_tokens (expires_at) WHERE expires_at IS NOT NULL;
