-- Two roles for countersign, run once by a superuser in the database that it shall use:
--
--     psql --dbname countersign --file roles.sql
--
-- `countersign_owner` makes and changes the tables: the first start after an installation or an upgrade is made as it.
-- `countersign` serves: it reads and writes rows and can change no table, no entry of the audit log and no certificate's
-- existence. Give each a password or a certificate in pg_hba.conf.

CREATE ROLE countersign_owner LOGIN;
CREATE ROLE countersign LOGIN;

CREATE SCHEMA countersign AUTHORIZATION countersign_owner;
GRANT USAGE ON SCHEMA countersign TO countersign;

-- For every table that the owner makes, now and by later upgrades.
ALTER DEFAULT PRIVILEGES FOR ROLE countersign_owner IN SCHEMA countersign
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO countersign;
