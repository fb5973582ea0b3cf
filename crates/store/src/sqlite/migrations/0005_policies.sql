-- What decisions rest on, which policies decided, and requests that could not be decided.

-- What cannot be had again and is needed to decide a request anew: as JSON, absent where there is none.
ALTER TABLE requests ADD COLUMN evidence TEXT;

-- A request whose evidence could not be had is kept as undecided, so that somebody can see why.
DROP INDEX requests_open;
CREATE INDEX requests_open ON requests (state, door, key, id, created)
    WHERE state = 'pending' OR state = 'approved' OR state = 'denied' OR state = 'failed' OR state = 'undecided';

-- What was turned away, newest last. They are bounded in number.
CREATE INDEX requests_rejected ON requests (number) WHERE state = 'denied' OR state = 'undecided';

-- What waits for evidence that may still appear.
CREATE INDEX requests_retry ON requests (number)
    WHERE state = 'pending' AND live = 1 AND json_extract(explanation, '$.retry') = 1;

-- Every policy that was ever in force. The newest has the highest generation.
CREATE TABLE policies (
    generation INTEGER PRIMARY KEY,
    digest     BLOB    NOT NULL,
    loaded     INTEGER NOT NULL,
    text       TEXT    NOT NULL
) STRICT;

-- What deciders that use up their own tokens have allowed: they are not asked again for the same request. `asked` is SHA-256 of
-- what is asked for and by which key.
CREATE TABLE webhook_allows (
    webhook         TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    asked           BLOB    NOT NULL,
    until           INTEGER NOT NULL,
    PRIMARY KEY (webhook, name, asked)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_allows_until ON webhook_allows (until);
