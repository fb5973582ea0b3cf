-- Secrets of tokens that were mistyped were kept in clear: requests are masked anew, octet for octet. `masked_request`
-- answers NULL where there is nothing to mask.
UPDATE requests SET csr = masked_request(csr) WHERE masked_request(csr) IS NOT NULL;
UPDATE request_states SET csr = masked_request(csr) WHERE masked_request(csr) IS NOT NULL;
UPDATE intents SET csr = masked_request(csr) WHERE masked_request(csr) IS NOT NULL;

-- Under a key, a second MAC covers what the record of a token says. Records from before have none, so that their tokens
-- cannot be verified any more: those that could still be used are taken back, and the audit log says so. Records without
-- a key stay, and are good until one is configured.
ALTER TABLE tokens ADD COLUMN terms_mac BLOB CHECK (terms_mac IS NULL OR length(terms_mac) = 32);
ALTER TABLE bootstrap_tokens ADD COLUMN terms_mac BLOB CHECK (terms_mac IS NULL OR length(terms_mac) = 32);
UPDATE store_state SET revision = revision + 1
    WHERE EXISTS (SELECT 1 FROM tokens WHERE mac_key_id <> '' AND phase = 'open')
       OR EXISTS (SELECT 1 FROM bootstrap_tokens WHERE mac_key_id <> '' AND revoked_at IS NULL);
INSERT INTO audit (revision, seq, entry)
    SELECT (SELECT revision FROM store_state), row_number() OVER () - 1,
           json_object('at', strftime('%Y-%m-%dT%H:%M:%SZ', 'now'),
                       'actor', json('{"identity":{"kind":"authority"}}'),
                       'action', action, 'subject', subject,
                       'detail', 'its record has no MAC over name, expiry, uses and signer: mint another',
                       'token', id)
    FROM (SELECT 'token.revoked' AS action, 'token/' || id AS subject, id
              FROM tokens WHERE mac_key_id <> '' AND phase = 'open'
          UNION ALL
          SELECT 'bootstrap_token.revoked', 'bootstrap-token/' || id, id
              FROM bootstrap_tokens WHERE mac_key_id <> '' AND revoked_at IS NULL);
UPDATE tokens
    SET standing = 'revoked', phase = 'revoked', ended_at = unixepoch(), version = (SELECT revision FROM store_state)
    WHERE mac_key_id <> '' AND phase = 'open';
UPDATE bootstrap_tokens SET revoked_at = unixepoch() WHERE mac_key_id <> '' AND revoked_at IS NULL;

-- What waits and what was turned away is bounded in bytes, too, and what waits is counted by IPv4 address or IPv6 /64, as
-- rates are. `one_source` answers with that.
ALTER TABLE requests ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE requests SET bytes = length(csr) + length(attachment)
    WHERE state = 'pending' OR state = 'denied' OR state = 'undecided';
DROP INDEX requests_source;
UPDATE requests SET source = one_source(source) WHERE source LIKE '%:%';
UPDATE intents SET source = one_source(source) WHERE source LIKE '%:%';
CREATE INDEX requests_source ON requests (source, door, bytes) WHERE state = 'pending' AND live = 1;

-- Denials of one source, at one door and for one reason, that the audit log does not tell one by one: counted by the
-- commits that wrote them, told as one entry within some two hours of the first.
CREATE TABLE repeated_denials (
    source    TEXT    NOT NULL,
    door      TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    last_name TEXT    NOT NULL,
    PRIMARY KEY (source, door, code)
) STRICT, WITHOUT ROWID;
