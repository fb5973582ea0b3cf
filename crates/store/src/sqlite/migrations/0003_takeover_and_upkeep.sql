-- Certificates taken over from another authority, counted serials, several CRLs per issuer, and what upkeep looks up.

-- Revoked, but no longer shown by CRLs: an administrator took it off them.
ALTER TABLE certificates ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0 CHECK (unlisted IN (0, 1));

DROP INDEX certificates_revoked;
CREATE INDEX certificates_revoked
    ON certificates (issuer, not_after, serial, revoked_at, revoked_reason, unlisted)
    WHERE revoked_at IS NOT NULL;

-- What ends soon, of what is still in use. The last three columns are always the same; with them the index
-- alone answers.
CREATE INDEX certificates_ending ON certificates (not_after, issuer, state, retired, revoked_at)
    WHERE state = 'issued' AND retired IS NULL AND revoked_at IS NULL;

-- How much waits, and from which address it came.
CREATE INDEX requests_source ON requests (json_extract(requester, '$.source'), door)
    WHERE state = 'pending' AND live = 1;

-- Requests by age, for those who collect old ones. Identities begin with their time. Of the open ones few are so old
-- that it matters, so their index only gets what saves visits to the rows.
CREATE INDEX requests_issued ON requests (door, id) WHERE state = 'issued';
DROP INDEX requests_open;
CREATE INDEX requests_open ON requests (state, door, key, id, created)
    WHERE state = 'pending' OR state = 'approved' OR state = 'denied' OR state = 'failed';

CREATE TABLE crls_by_scope (
    issuer      TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    covers      INTEGER NOT NULL,
    this_update INTEGER NOT NULL,
    next_update INTEGER NOT NULL,
    der         BLOB    NOT NULL,
    PRIMARY KEY (issuer, scope)
) STRICT;
INSERT INTO crls_by_scope SELECT issuer, 'full', number, covers, this_update, next_update, der FROM crls;
DROP TABLE crls;
ALTER TABLE crls_by_scope RENAME TO crls;

-- CRLs of the CAs above an issuer. Numbers are big-endian magnitudes: they may be larger than an integer.
CREATE TABLE ancestor_crls (
    issuer   TEXT    NOT NULL,
    key_id   BLOB    NOT NULL,
    number   BLOB    NOT NULL,
    position INTEGER NOT NULL,
    der      BLOB    NOT NULL,
    PRIMARY KEY (issuer, key_id)
) STRICT;

-- Issuers whose serials are counted, as those of a Puppet Server are.
CREATE TABLE serials (
    issuer TEXT    PRIMARY KEY,
    next   INTEGER NOT NULL
) STRICT;

-- How often this store was restored from a backup, and when last. What was given out under an earlier epoch and is not
-- on record here may exist all the same.
ALTER TABLE store_state ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store_state ADD COLUMN restored INTEGER;
