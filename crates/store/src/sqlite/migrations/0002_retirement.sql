-- When a certificate was retired: no longer shown as its name's newest, and no obstacle to another.
ALTER TABLE certificates ADD COLUMN retired INTEGER;

-- One index for both questions about a name: everything it ever had, and the newest that is not retired.
DROP INDEX certificates_name;
CREATE INDEX certificates_name ON certificates (issuer, name, retired) WHERE state = 'issued';
