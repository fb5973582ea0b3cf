-- After the first start as `countersign_owner`, and after an upgrade: takes from `countersign` what it never does.
--
--     psql --dbname countersign --file narrow.sql

SET search_path = countersign;
REVOKE UPDATE, DELETE ON audit, audit_seals, policies FROM countersign;
REVOKE DELETE ON certificates, store_state, crls FROM countersign;
REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM countersign;
