-- Seals of the audit log. Each holds the SHA-256 hashes of its entries, 32 octets each, and continues the one before it.
CREATE TABLE audit_seals (
    number         INTEGER PRIMARY KEY,
    first_revision INTEGER NOT NULL,
    first_seq      INTEGER NOT NULL,
    last_revision  INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    count          INTEGER NOT NULL,
    previous       BLOB    NOT NULL,
    hash           BLOB    NOT NULL,
    at             INTEGER NOT NULL,
    key_id         BLOB    NOT NULL,
    signature      BLOB    NOT NULL,
    hashes         BLOB    NOT NULL
) STRICT;
