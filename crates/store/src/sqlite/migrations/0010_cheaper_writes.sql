-- A row of the ledger is a certificate or a burned serial. Nothing stored changes: the condition alone is written anew,
-- because SQLite builds a temporary tree for a list of three words, and did so for every certificate.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema
    SET sql = replace(sql, 'CHECK (state IN (''intended'', ''issued'', ''void''))',
                      'CHECK (state = ''issued'' OR state = ''void'')')
    WHERE type = 'table' AND name = 'certificates';
PRAGMA writable_schema = RESET;

-- Entries are appended to a table of rows, and only their places are kept in order: a tree that holds whole entries in
-- its inner pages was rearranged with nearly every commit.
CREATE TABLE audit_in_rows (
    revision INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    entry    TEXT    NOT NULL,
    PRIMARY KEY (revision, seq)
) STRICT;
INSERT INTO audit_in_rows (revision, seq, entry) SELECT revision, seq, entry FROM audit ORDER BY revision, seq;
DROP TABLE audit;
ALTER TABLE audit_in_rows RENAME TO audit;
