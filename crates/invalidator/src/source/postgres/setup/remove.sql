-- Removes what the installation made. A publication, or a table of the canary, that was there before
-- stays. The slot comes first: one that is in use stops everything.

SELECT pg_catalog.pg_drop_replication_slot(slot_name)
FROM pg_catalog.pg_replication_slots WHERE slot_name = @slot@;

BEGIN;

DROP EVENT TRIGGER IF EXISTS @schema@;
DROP EVENT TRIGGER IF EXISTS @rewrite@;
-- With the triggers of partitions, which call its functions.
DROP SCHEMA IF EXISTS @schema@ CASCADE;

DO $$ BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = @publication_text@
        AND pg_catalog.obj_description(p.oid, 'pg_publication') = @mark@
    ) THEN
        DROP PUBLICATION @publication@;
    END IF;
END $$;
@canary@
COMMIT;
